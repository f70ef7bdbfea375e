"""Profiles of serving engines: in the cost of a step, in memory, in scheduling, and their comparison with measurements."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app.serving import calibrate_serving, validate_serving
from windtunnel.cli.main import cli
from windtunnel.core.decoder_memory import LargestStep, ShareOf
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.core.ops import one_row
from windtunnel.core.policy import Batch
from windtunnel.core.provenance import Provenance
from windtunnel.core.results.measured_serving import ReplayResult
from windtunnel.core.serving_engine import ENGINE_NAMES, Admission, Bounds, divided_decoder
from windtunnel.core.step import EngineTimes
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.core.step_op import Step
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.replica import Replica
from windtunnel.library.closed_loop import ClosedLoop, errors, loop_times
from windtunnel.library.steps import StepPricing
from windtunnel.scenario.decoder import ServedModel
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run
from windtunnel.validation.serving import read_loops, read_measurements
from windtunnel_models.campaigns import polling_steps, published_cache, published_formats
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.engines import read_engine_overlay, serving_engine
from windtunnel_models.engines.fit import fit_times
from windtunnel_models.models import known_architecture

CATALOGUE = Catalogue()
H100 = CATALOGUE.device("h100-sxm-80gb")
CONTEXT = {"dispatch": "graph", "clock": "sustained"}
LLAMA = known_architecture("llama-3.1-8b")


def served(engine: str, prompt: int, output: int, jobs: int, **batch: Any) -> dict[str, Any]:
    """Return ``jobs`` equal requests that arrive at once at one device."""
    return {
        "schema": 1,
        "name": "engine",
        "fleet": [{"device": "h100-sxm-80gb", "engine": engine}],
        "models": {"chat": {"catalogue": "llama-3.1-8b"}},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "deterministic", "rate": "1000 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": prompt, "output": output}}],
            }
        ],
        "policy": {"name": "fifo", "batch": {"kind": "continuous", **batch}},
        "stop": {"jobs": jobs},
        "warm_up": "none",
    }


def run(data: dict[str, Any], engine: str = "auto") -> Run:
    return windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE, engine=engine)


def test_every_number_of_a_profile_has_a_range_or_a_source_and_fitted_ones_have_both() -> None:
    for name in ENGINE_NAMES:
        engine = serving_engine(name)
        for key, number in engine.values.items():
            assert number.source, key
            assert number.provenance in (Provenance.PUBLISHED, Provenance.ASSUMED), key
            if "error" not in key:
                assert number.low is not None and number.high is not None, key
        for key in engine.fitted:
            assert {f"{number}.{key}" for number in (*EngineTimes.NUMBERS, "error")} <= engine.values.keys()


def test_an_engine_has_its_own_batch_unless_the_scenario_states_one() -> None:
    l4 = CATALOGUE.device("l4")
    own = Batch("continuous", 0, tokens=0, memory=0.0)
    assert Replica(H100, engine=serving_engine("generic")).largest_step(own) == LargestStep(8192, 256)
    assert Replica(H100, engine=serving_engine("generic")).memory_share(own) == 0.9
    assert Replica(l4, engine=serving_engine("vllm")).largest_step(own) == LargestStep(2048, 256)
    assert Replica(H100, engine=serving_engine("vllm")).largest_step(own) == LargestStep(8192, 1024)
    for sku, tokens in [("l4", 2048), ("l40s", 4096), ("h100-sxm-80gb", 8192), ("b200-sxm-180gb", 16384)]:
        assert Replica(CATALOGUE.device(sku), engine=serving_engine("sglang")).largest_step(own).tokens == tokens
    # vLLM's larger limits are slower on A100, whatever its memory.
    a100 = Replica(CATALOGUE.device("a100-sxm-80gb"), engine=serving_engine("vllm"))
    assert a100.largest_step(own) == LargestStep(2048, 256)
    stated = Batch("continuous", 7, tokens=512, memory=0.5)
    assert Replica(H100, engine=serving_engine("vllm")).largest_step(stated) == LargestStep(512, 7)
    assert Replica(H100, engine=serving_engine("vllm")).memory_share(stated) == 0.5


def test_an_engine_reads_its_memory_share_in_its_own_way() -> None:
    shares = {name: serving_engine(name).reserves.share_of for name in ENGINE_NAMES}
    assert shares == {
        "generic": ShareOf.DEVICE,
        "vllm": ShareOf.DEVICE,
        "sglang": ShareOf.STATIC,
        "trtllm": ShareOf.FREE,
    }
    sized = {
        name: run(served(name, 100, 2, 2, memory=0.8)).result.serving.kv_capacity_tokens["h100-sxm-80gb"]  # type: ignore[union-attr]
        for name in ("vllm", "sglang")
    }
    # SGLang does not take activations out of its share.
    assert sized["sglang"] > sized["vllm"]


def test_a_step_takes_the_operations_times_a_factor_and_the_host() -> None:
    load = StepLoad(*(np.array([value]) for value in (32.0, 1024.0, 0.0, 0.0)))
    engine = serving_engine("vllm")
    bare = divided_decoder(H100, LLAMA, Group(), replace(engine, values={}))
    whole = divided_decoder(H100, LLAMA, Group(), engine)
    times = whole.times
    assert times.host_s > 0 and times.decode != 1.0
    operations, step = (step_cost(H100, divided, load, CONTEXT) for divided in (bare, whole))
    host_s = times.host_s + 32 * times.host_sequence_s
    assert step.duration_s[0] == pytest.approx(times.decode * operations.duration_s[0] + host_s)
    assert step.host_s[0] == pytest.approx(host_s)
    # The interval of a step is at least that of the profile.
    assert step.duration_high_s[0] >= step.duration_s[0] * times.error_factor * (1 - 1e-9)


def test_a_step_with_a_prompt_takes_at_least_the_launches_of_its_layers() -> None:
    engine = serving_engine("trtllm")
    small = StepLoad(*(np.array([value]) for value in (1.0, 64.0, 16.0, 0.0)))
    divided = divided_decoder(H100, LLAMA, Group(), engine)
    least_s = divided.times.prompt_layer_s * LLAMA.layer_count
    assert least_s > 0.01
    assert step_cost(H100, divided, small, CONTEXT).duration_s[0] > least_s


def test_predicted_parts_with_the_host_add_up_to_the_step() -> None:
    row = {"model": "llama-3.1-8b", "decode": 64, "context": 1000, "prefill": 512, "engine": "vllm"}
    cost = StepPricing(H100).one(one_row(Step, row))
    assert sum(part.duration_s for part in cost.parts) == pytest.approx(cost.duration_s)
    (host,) = [part for part in cost.parts if part.part == "host time"]
    assert host.duration_s > 0 and host.bound == "host"


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
def test_tables_of_the_simulation_give_the_step_of_an_engine_that_predict_gives(name: str) -> None:
    engine = serving_engine(name)
    tables = DecoderCosts(
        Replica(H100, Group(), engine), ServedModel(LLAMA, "graph", "sustained"), LargestStep(512, 64), 4096
    )
    divided = divided_decoder(H100, LLAMA, Group(), engine)
    loads = [(48.0, 1024.0, 0.0, 0.0), (16.0, 2048.0, 256.0, 0.0), (0.0, 0.0, 512.0, 512.0)]
    for decode, context, prefill, before in loads:
        load = StepLoad(*(np.array([value]) for value in (decode, context, prefill, before)))
        expected = step_cost(H100, divided, load, CONTEXT)
        chunks = [(int(before), int(prefill))] if prefill else []
        seconds, joules = tables.step(int(decode), decode * context, chunks, int(prefill > 0))
        assert seconds == pytest.approx(expected.duration_s[0], rel=0.02)
        assert joules + seconds * tables.idle_power_w == pytest.approx(expected.energy_j[0], rel=0.02)


def pieces(prompt: int, most: int) -> list[tuple[int, int]]:
    """The start and the length of each chunk of a prompt."""
    return [(start, min(most, prompt - start)) for start in range(0, prompt, most)]


@pytest.mark.parametrize(
    ("model", "group"),
    [("llama-3.1-8b", Group(attention_data=4)), ("qwen3-30b-a3b", Group(tensor=2, attention_data=2, expert=4))],
)
def test_a_request_is_on_one_copy_of_the_attention_in_steps_and_in_simulations(model: str, group: Group) -> None:
    engine, decoder = serving_engine("vllm"), known_architecture(model)
    tables = DecoderCosts(
        Replica(H100, group, engine), ServedModel(decoder, "graph", "sustained"), LargestStep(4096, 64), 4096
    )
    divided = divided_decoder(H100, decoder, group, engine)
    costs = []
    for decode, prefill, before in [(0.0, 1024.0, 0.0), (0.0, 512.0, 512.0), (32.0, 256.0, 0.0), (48.0, 0.0, 0.0)]:
        load = StepLoad(*(np.array([value]) for value in (decode, 1024.0 if decode else 0.0, prefill, before)))
        expected = step_cost(H100, divided, load, CONTEXT)
        chunks = [(int(before), int(prefill))] if prefill else []
        seconds, joules = tables.step(int(decode), decode * 1024.0, chunks, int(prefill > 0))
        assert seconds == pytest.approx(expected.duration_s[0], rel=0.01)
        assert joules + seconds * tables.idle_power_w == pytest.approx(expected.energy_j[0], rel=0.01)
        costs.append(seconds)
    # The other copies wait for one prompt; several prompts are read at the same time.
    several, _ = tables.step(0, 0.0, [(0, 512), (0, 512)], 2)
    assert several < 0.9 * costs[0]
    served_ = served("vllm", 1000, 1, 1, tokens=4096)
    parts = {key: value for key, value in asdict(group).items() if value is not None}
    served_["fleet"] = [{"device": "h100-sxm-80gb", "count": group.devices, "engine": "vllm", "group": parts}]
    served_["models"]["chat"] = {"catalogue": model}
    jobs = run(served_, "process").recording.jobs
    first_s = (jobs.first - jobs.arrival)[0] / 1e12
    assert first_s == pytest.approx(tables.step(0, 0.0, [(0, 1000)], 1)[0], rel=1e-3)
    # A copy has its part of the tokens of a step, so longer prompts are read in chunks.
    assert tables.reading([3000]) == pytest.approx(
        np.sum(
            [tables.step(0, 0.0, [(k, n)], int(k + n == 3000)) for k, n in pieces(3000, 4096 // group.attention_data)],
            0,
        )
    )


def test_on_another_sku_the_interval_of_a_profile_is_wider() -> None:
    engine = serving_engine("vllm")
    h200 = CATALOGUE.device("h200-sxm-141gb")
    seen, unseen = engine.times(LLAMA, H100), engine.times(LLAMA, h200)
    assert replace(seen, error_factor=1.0) == replace(unseen, error_factor=1.0)
    assert unseen.error_factor > seen.error_factor > 1.0


def test_sglang_reads_prompts_in_steps_in_which_no_sequence_decodes() -> None:
    names = {}
    for engine in ("sglang", "vllm"):
        recording = run(served(engine, 2000, 60, 12, tokens=2048)).recording
        names[engine] = {piece.name for piece in recording.slices}
    assert names["vllm"] - names["sglang"] == {"prefill + decode"}


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_gaps_between_tokens_add_up_to_the_time_of_all_requests(engine: str) -> None:
    for simulation in ("process", "compiled"):
        recording = run(served(engine, 700, 40, 30, tokens=1024), simulation).recording
        jobs, gaps = recording.jobs, recording.token_gaps
        assert int(gaps.weights.sum()) == 30 * 39
        assert int((gaps.ticks * gaps.weights).sum()) == int((jobs.finish - jobs.first).sum())


def test_an_engine_that_reserves_whole_contexts_preempts_no_request() -> None:
    notes = {}
    for engine in ("vllm", "trtllm"):
        data = served(engine, 200, 600, 60, size=64, tokens=2048)
        data["fleet"][0]["memory"] = "20 GB"
        finished = run(data)
        assert finished.result.jobs.completed == 60
        notes[engine] = " ".join(finished.result.notes)
    assert serving_engine("trtllm").admission is Admission.WHOLE
    assert "preempted" in notes["vllm"] and "preempted" not in notes["trtllm"]


def test_a_prompt_that_fits_in_a_step_is_not_divided_without_chunked_prefill() -> None:
    # 3 prompts of 700 tokens in steps of 1,024: each needs its own step, where chunks fill two and a part of a third.
    first = {}
    for engine in ("vllm", "trtllm"):
        data = served(engine, 700, 2, 3, tokens=1024)
        data["workload"][0]["arrivals"]["rate"] = "1e6 /s"
        jobs = run(data).recording.jobs
        first[engine] = np.unique(np.diff(np.sort(jobs.first)) > 0).tolist()
        assert len(np.unique(jobs.first)) == 3
    assert first["trtllm"] == [True]


def test_users_of_a_ramp_begin_one_after_the_other() -> None:
    data = served("vllm", 100, 2, 4)
    think = {"distribution": "deterministic", "mean": "1 ms"}
    data["workload"][0]["arrivals"] = {"process": "closed", "users": 4, "think": think, "ramp": "8 s"}
    arrival = run(data).recording.jobs.arrival
    # Earlier users go on while the later ones have not begun.
    assert int(arrival[0]) == 10**9
    assert len(arrival) == 4


# Fits.


def synthetic(times: EngineTimes, users: list[float]) -> tuple[list[Any], list[float]]:
    loops = [ClosedLoop("vllm", "llama-3.1-8b", "h100-sxm-80gb", Group(), "", "", u, 1024.0, 256.0) for u in users]
    rows = loop_times(loops, StepPricing(H100))
    return rows, [row.tpot_s(times) for row in rows]


def test_a_fit_explains_times_and_tells_the_host_from_the_operations() -> None:
    truth = EngineTimes(decode=0.9, prefill=0.95, host_s=2e-3, host_sequence_s=50e-6)
    rows, seconds = synthetic(truth, [float(2**k) for k in range(9)] * 40)
    fitted = fit_times(lambda times: errors(rows, seconds, times), EngineTimes(), np.ones(len(rows)))
    assert np.abs(errors(rows, seconds, fitted.times)).max() < 0.02
    assert np.abs(errors(rows, seconds, EngineTimes())).max() > 0.2
    assert fitted.times.host_sequence_s > 20e-6 and fitted.times.host_s > 0.5e-3
    assert all(number.low <= number.value <= number.high for number in fitted.numbers.values())


def test_without_rows_a_fit_stays_at_its_prior_and_learns_nothing() -> None:
    prior = EngineTimes(decode=0.8, prefill=0.9, prompt_layer_s=1e-4, host_s=1e-3, host_sequence_s=1e-5)
    fitted = fit_times(lambda _: np.zeros(0), prior, np.ones(0))
    for name, number in fitted.numbers.items():
        assert number.value == pytest.approx(getattr(prior, name), rel=1e-3)
        assert number.learned < 1e-3


# Commands.


def table(path: Path, rows: list[str], header: str = "") -> Path:
    columns = header or "engine,model,sku,tensor,weights,users,prompt_tokens,output_tokens,ttft_s,tpot_s"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


ROW = "vllm,llama-3.1-8b,h100-sxm-80gb,1,fp8,4,256,32,0.05,0.006"


def test_rows_are_simulated_and_compared_with_signed_errors(tmp_path: Path) -> None:
    file = table(tmp_path / "rows.csv", [ROW, ROW.replace(",4,256", ",8,256").replace("0.006", "")])
    result = CliRunner().invoke(cli, ["validate", "serving", str(file), "--format", "json"], catch_exceptions=False)
    first, second = json.loads(result.stdout)
    assert first["row"] == 1 and first["engine"] == "vllm" and first["sku"] == "h100-sxm-80gb"
    assert first["error"]["tpot_s"] == pytest.approx(first["tpot_s"] / 0.006 - 1.0)
    assert first["measured"]["e2e_s"] == pytest.approx(0.05 + 31 * 0.006)
    assert first["model_low"]["tpot_s"] < first["tpot_s"] < first["model_high"]["tpot_s"]
    assert second["measured"]["tpot_s"] is None and second["error"]["tpot_s"] is None
    assert "MAPE" in result.stderr


def test_the_error_of_the_first_token_is_that_of_the_kind_of_decoder() -> None:
    dense, experts = known_architecture("llama-3.1-8b"), known_architecture("mixtral-8x7b")
    for name in ENGINE_NAMES:
        profile = serving_engine(name)
        few, many = (profile.first_token_error(model).value for model in (dense, experts))
        assert 1.0 < few < many
        first, whole = profile.with_first_token(experts, Bounds(1.0, 0.9, 1.1), Bounds(3.0, 2.7, 3.3))
        assert (first.low, first.high) == pytest.approx((1.0 / many, many))
        assert (whole.low, whole.high) == pytest.approx((2.7 - 0.9 + 1.0 / many, 3.3 - 1.1 + many))
        overloaded, _ = profile.with_first_token(dense, Bounds(1.0, 0.9, None), Bounds(3.0, 2.7, None))
        assert overloaded.high is None


def test_a_closed_loop_agrees_with_its_formula(tmp_path: Path) -> None:
    rows, _ = synthetic(EngineTimes(), [16.0])
    expected_s = rows[0].tpot_s(serving_engine("vllm").times(LLAMA, H100))
    (row,) = validate_serving(
        table(tmp_path / "rows.csv", ["vllm,llama-3.1-8b,h100-sxm-80gb,1,,16,1024,256,,"]), catalogue=CATALOGUE
    )  # type: ignore[misc]
    assert row.tpot_s == pytest.approx(expected_s, rel=0.05)


def test_configurations_that_the_models_refuse_say_why_and_the_others_go_on(tmp_path: Path) -> None:
    refused = ROW.replace("h100-sxm-80gb,1", "h100-sxm-80gb,7")
    first, second = validate_serving(table(tmp_path / "rows.csv", [refused, ROW]), catalogue=CATALOGUE)  # type: ignore[misc]
    assert first.tpot_s is None and first.problem is not None and "7" in first.problem
    assert second.tpot_s is not None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROW.replace("vllm", "vlm"), ("vlm", "engine", "vllm")),
        (ROW.replace("llama-3.1-8b", "llama-3.1-9b"), ("llama-3.1-9b", "llama-3.1-8b", "2")),
        (ROW.replace("h100-sxm-80gb", "h100"), ("h100", "sku")),
        (ROW.replace(",4,256", ",,256"), ("users", "rate_per_s")),
        (ROW.replace(",256,32", ",many,32"), ("many", "prompt_tokens")),
    ],
    ids=["engine", "model", "sku", "users", "number"],
)
def test_a_wrong_cell_is_named_with_its_line(tmp_path: Path, row: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        validate_serving(table(tmp_path / "rows.csv", [row]), catalogue=CATALOGUE)
    for word in (*words, "rows.csv"):
        assert word in str(caught.value)


def test_a_request_log_is_replayed_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    lines = [f"{k * 0.2:.1f},{200 + 50 * k},{10 + k},{k * 0.2 + 0.1:.2f},{k * 0.2 + 0.5:.2f}" for k in range(12)]
    table(log, lines, "arrival_s,prompt_tokens,output_tokens,first_token_s,last_token_s")
    stated = {"model": "llama-3.1-8b", "sku": "h100-sxm-80gb", "engine": "vllm", "batch.size": "8"}
    result = validate_serving(log, stated=stated, catalogue=CATALOGUE)
    assert isinstance(result, ReplayResult) and result.requests == 12
    assert result.measured["ttft_s"].mean == pytest.approx(0.1)
    assert result.measured["e2e_s"].p50 == pytest.approx(0.5)
    figure = result.modelled["tpot_s"].p95 / result.measured["tpot_s"].p95 - 1.0
    assert result.error["tpot_s"].p95 == pytest.approx(figure)
    with pytest.raises(InputError, match=r"'model' is missing.*--set model"):
        validate_serving(log, stated={"sku": "h100-sxm-80gb", "engine": "vllm"}, catalogue=CATALOGUE)
    with pytest.raises(InputError, match=r"batch\.sise.*batch\.size"):
        validate_serving(log, stated={**stated, "batch.sise": "8"}, catalogue=CATALOGUE)


def test_one_row_calibrates_an_engine_and_a_fleet_entry_takes_the_overlay(tmp_path: Path) -> None:
    truth = replace(serving_engine("vllm").times(LLAMA, H100), decode=1.3)
    _, (seconds,) = synthetic(truth, [8.0])
    file = table(tmp_path / "rows.csv", [f"8,1024,256,{seconds}"], "users,prompt_tokens,output_tokens,tpot_s")
    overlay = tmp_path / "mine.yaml"
    arguments = ["calibrate", "serving", str(file), "--device", "h100-sxm-80gb", "--model", "llama-3.1-8b"]
    done = CliRunner().invoke(
        cli, [*arguments, "--engine", "vllm", "--out", str(overlay), "--format", "json"], catch_exceptions=False
    )
    found = json.loads(done.stdout)
    assert found["rows"] == 1 and found["error"] < 0.6 * found["shipped_error"]
    engine = read_engine_overlay(overlay)
    assert engine.times(LLAMA, H100).decode > serving_engine("vllm").times(LLAMA, H100).decode
    # With another model the interval is that of a profile that was not fitted to it.
    other = known_architecture("qwen3-32b")
    assert engine.times(other, H100).error_factor > engine.times(LLAMA, H100).error_factor
    data = served("vllm", 500, 60, 10)
    shipped_s = run(data).result.latency_s.mean.value
    data["fleet"][0]["calibration"] = str(overlay)
    assert run(data).result.latency_s.mean.value > 1.1 * shipped_s
    data["fleet"][0]["engine"] = "sglang"
    with pytest.raises(InputError, match=r"is a calibration of vllm"):
        run(data)


def test_rows_held_out_of_a_calibration_are_predicted_better_than_by_the_profile(tmp_path: Path) -> None:
    truth = replace(serving_engine("vllm").times(LLAMA, H100), decode=1.2, host_sequence_s=9e-5)
    users = [1.0, 8.0, 32.0, 64.0, 128.0]
    _, seconds = synthetic(truth, users)
    lines = [f"{u:.0f},1024,256,{s}" for u, s in zip(users, seconds, strict=True)]
    file = table(tmp_path / "rows.csv", lines, "users,prompt_tokens,output_tokens,tpot_s")
    found = calibrate_serving(file, device="h100-sxm-80gb", model="llama-3.1-8b", engine="vllm", catalogue=CATALOGUE)
    assert found.held_out_error is not None and found.held_out_error < 0.5 * found.shipped_error


def test_result_files_of_load_generators_are_rows(tmp_path: Path) -> None:
    vllm = {
        "model_id": "meta-llama/Llama-3.1-8B", "max_concurrency": 4, "request_rate": "inf", "completed": 10,
        "total_input_tokens": 2560, "total_output_tokens": 320, "mean_ttft_ms": 50.0, "mean_tpot_ms": 6.0,
    }  # fmt: skip
    sglang = {
        "backend": "sglang", "max_concurrency": None, "request_rate": 2.0, "completed": 10, "total_input_tokens": 1000,
        "total_output_tokens": 100, "mean_ttft_ms": 40.0, "mean_tpot_ms": 7.0, "mean_e2e_latency_ms": 103.0,
    }  # fmt: skip
    genai = {
        "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 8}}},
        **{
            name: {"avg": value}
            for name, value in (
                ("time_to_first_token", 30.0), ("inter_token_latency", 5.0), ("request_latency", 180.0),
                ("input_sequence_length", 200.0), ("output_sequence_length", 31.0),
            )
        },
    }  # fmt: skip
    (tmp_path / "vllm.json").write_text(json.dumps(vllm, indent=1))
    (tmp_path / "sglang.jsonl").write_text(json.dumps(sglang) + "\n" + json.dumps(sglang) + "\n")
    (tmp_path / "genai.json").write_text(json.dumps(genai))
    stated = {"sku": "h100-sxm-80gb", "engine": "vllm"}
    (row,) = read_loops(read_measurements(tmp_path / "vllm.json"), stated)
    assert (row.users, row.prompt, row.output, row.measured["tpot_s"]) == (4, 256, 32, 0.006)
    rows = read_loops(read_measurements(tmp_path / "sglang.jsonl"), {"sku": "h100-sxm-80gb", "model": "llama-3.1-8b"})
    assert [(r.rate_per_s, r.deployment.engine, r.measured["e2e_s"]) for r in rows] == [(2.0, "sglang", 0.103)] * 2
    (row,) = read_loops(read_measurements(tmp_path / "genai.json"), {**stated, "model": "llama-3.1-8b"})
    assert (row.users, row.prompt, row.output, row.measured["ttft_s"]) == (8, 200, 31, 0.03)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="load generator"):
        read_measurements(tmp_path / "other.json")


def test_a_calibration_without_rows_of_the_deployment_is_refused(tmp_path: Path) -> None:
    file = table(tmp_path / "rows.csv", [ROW])
    with pytest.raises(InputError, match=r"no row is a closed loop of llama-3\.1-70b"):
        calibrate_serving(file, device="h100-sxm-80gb", model="llama-3.1-70b", engine="vllm", catalogue=CATALOGUE)


def test_a_format_that_campaigns_call_by_its_family_is_that_of_the_published_checkpoint() -> None:
    assert published_formats("gpt-oss-120b", "nvfp4/nvfp4") == ""
    assert published_formats("minimax-m2.5", "fp8") == ""
    assert published_formats("minimax-m2.5", "nvfp4") == "nvfp4"
    # One format of all weights is told, and the published checkpoint has 4 bits in its experts alone.
    assert published_formats("kimi-k2.5", "int4/int4") == ""
    assert published_formats("kimi-k2.5", "bfloat16/int4") == "bfloat16/int4"
    assert published_formats("llama-3.1-70b", "fp8") == "fp8"


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_a_run_of_a_closed_loop_gives_the_times_of_its_validation(engine: str, tmp_path: Path) -> None:
    users, prompt, output, name = 3, 700, 12, "llama-3.1-8b"
    path = tmp_path / "m.csv"
    path.write_text(
        "engine,model,sku,users,prompt_tokens,output_tokens,tpot_s\n"
        f"{engine},{name},h100-sxm-80gb,{users},{prompt},{output},0.01\n"
    )
    (row,) = validate_serving(path)
    profile = serving_engine(engine)
    data = served(engine, prompt, output, users, size=users)
    closed = {"process": "closed", "users": users, "think": {"distribution": "deterministic", "mean": "0 s"}}
    data["workload"][0]["arrivals"] = closed
    together = run(data, "process").result.serving
    closed["ramp"] = f"{together.e2e_s.mean.value!r} s"
    data["stop"] = {"jobs": 5 * users}
    done = run(data, "process")
    jobs, kept = done.recording.jobs, slice(2 * users, 4 * users)
    assert row.ttft_s == pytest.approx(float(jobs.until_first(kept).mean()) / 1e12, rel=1e-9)
    assert row.e2e_s == pytest.approx(float(jobs.until_finish(kept).mean()) / 1e12, rel=1e-9)
    # The statistics, the records of single jobs and the cycle of a user have the time outside of the steps.
    outside_s = profile.frontend_s.value * 1e12
    assert jobs.outside is not None and np.all(jobs.outside >= outside_s)
    assert (np.all(jobs.outside == outside_s)) == (profile.late_prompts.value == 0)
    first_s = float(jobs.until_first(slice(None)).mean()) / 1e12
    assert done.result.serving.ttft_s.mean.value == pytest.approx(first_s, rel=1e-6)
    assert jobs.arrival[users] == jobs.finish[0] + jobs.outside[0]
    assert (
        run(data, "compiled").recording.jobs.until_first(slice(None)).tolist() == jobs.until_first(slice(None)).tolist()
    )


def test_without_a_front_end_no_time_outside_of_steps_is_kept() -> None:
    assert run(served("generic", 500, 4, 2), "process").recording.jobs.outside is None


def test_the_resolved_scenario_has_the_steps_and_the_memory_that_engines_decide() -> None:
    data = served("vllm", 500, 4, 2)
    one = run(data, "process").result.scenario
    assert one["policy"]["batch"] | {"size": 1024, "tokens": 8192, "memory": 0.9} == one["policy"]["batch"]
    data["fleet"].append({"device": "l4", "engine": "sglang", "batch": {"size": 64}})
    data["policy"]["name"] = "least-loaded"
    two = run(data, "process").result.scenario
    own = serving_engine("sglang").limits_on(CATALOGUE.device("l4"))
    h100, l4 = (entry["batch"] for entry in two["fleet"])
    assert h100 == {"size": 1024, "tokens": 8192, "memory": 0.9}
    assert (
        l4["size"] == 64
        and l4["tokens"] == own.tokens.value
        and l4["memory"] == serving_engine("sglang").memory_share.value
    )
    # The resolved scenario is a scenario, and gives the same run.
    again = windtunnel.run(scenario_from_data(two), catalogue=CATALOGUE, engine="process")
    assert again.result.scenario == two and again.result.serving == run(data, "process").result.serving


def test_limits_of_steps_of_an_entry_need_continuous_batching() -> None:
    data = served("vllm", 500, 4, 2)
    data["fleet"][0]["batch"] = {"size": 8}
    data["policy"] = "fifo"
    with pytest.raises(InputError, match="continuous"):
        run(data, "process")


def test_what_a_campaign_does_not_tell_is_filled_in_from_its_scripts_and_checkpoints() -> None:
    assert published_cache("nvfp4/nvfp4", "") == published_cache("nvfp4", "") == "fp8"
    assert published_cache("nvfp4", "bfloat16") == "bfloat16" and published_cache("fp8", "") == ""
    assert polling_steps("sglang", 1024, 1024, 8) == 10 and polling_steps("sglang", 8192, 1024, 16) == 30
    assert polling_steps("sglang", 1000, 1024, 16) == polling_steps("vllm", 1024, 1024, 16) == 1
    drawn, equal = (
        ClosedLoop("sglang", "llama-3.1-8b", "h100-sxm-80gb", Group(), "", "", 32.0, 1024.0, output)
        for output in (1024.0, 1000.0)
    )
    # With prompts in steps of their own, users wait for all prompts of the others if these are spread over the time.
    first, second = loop_times([drawn, equal], StepPricing(H100))
    alone = EngineTimes(decode=1e-9)
    assert first.tpot_s(alone) * 1024.0 == pytest.approx(2.0 * second.tpot_s(alone) * 1000.0, rel=1e-3)
