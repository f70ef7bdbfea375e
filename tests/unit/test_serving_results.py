"""The section `serving` of a result: closed forms of single requests, counts against the jobs, both kinds of intervals."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import memory_of

import windtunnel
from windtunnel.core.architecture import FORMAT_BITS
from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED, DROPPED, Recording
from windtunnel.core.results.run import RunResult, Serving, TokenEstimate
from windtunnel.core.serving_engine import DENSE
from windtunnel.engine.results.serving import largest_gaps
from windtunnel.report.numbers import value_range
from windtunnel.report.run_page import render
from windtunnel.report.summary import summary
from windtunnel.scenario.read import json_schema, scenario_from_data
from windtunnel.scenario.target import OF_REQUESTS
from windtunnel_models.engines import serving_engine

MODEL = {
    "layers": 4, "width": 512, "feed_forward": 1024, "heads": 8, "kv_heads": 2, "head_dim": 64, "vocabulary": 4096,
    "dtype": "float16", "kv_dtype": "float16",
}  # fmt: skip
# Of MODEL: the weights of the layers (queries, keys and values, output, three of the feed-forward) and of the head.
WEIGHTS = 4 * (512 * (512 + 2 * 128) + 512 * 512 + 3 * 512 * 1024)
HEAD = 512 * 4096


def flops_of_attention(attended: Iterable[int]) -> int:
    """Return the FLOP of tokens that attend to so many: 4 for each of 512 dimensions of the heads in 4 layers."""
    return 4 * 512 * 4 * sum(attended)


def scenario(**changes: Any) -> dict[str, Any]:
    """One request of 100 prompt tokens and 21 output tokens every 10 s on an L4."""
    return {
        "schema": 1,
        "name": "one",
        "models": {"chat": MODEL},
        "fleet": [{"device": "l4", "price": "0.72 USD/h"}],
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "deterministic", "rate": "0.1 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": 100, "output": 21}}],
            }
        ],
        "policy": {"route": "central", "batch": {"kind": "continuous", "size": 8, "tokens": 512, "memory": 0.9}},
        "stop": {"jobs": 3},
        **changes,
    }


def ran(data: dict[str, Any], engine: str = "auto", replications: int = 1) -> tuple[RunResult, Serving, Recording]:
    run = windtunnel.run(scenario_from_data(data), engine=engine, replications=replications)
    assert run.result.serving is not None
    return run.result, run.result.serving, run.recording


def crowded(**changes: Any) -> dict[str, Any]:
    """Requests that share a small KV cache, so that some are preempted, in two classes."""
    work = [
        {
            "name": name,
            "priority": priority,
            "arrivals": {"process": "poisson", "rate": "300 /s"},
            "ops": [{"generate": {"model": "chat", "prompt": prompt, "output": output}}],
        }
        for name, priority, prompt, output in (("gold", 1, 40, 30), ("free", 0, 90, 200))
    ]
    return scenario(
        fleet=[{"device": "l4", "count": 2, "memory": memory_of(MODEL, 1200, 64, 16, 1.0), "price": "0.72 USD/h"}],
        workload=work,
        policy={"route": "least-loaded", "batch": {"kind": "continuous", "size": 16, "tokens": 64, "memory": 1.0}},
        stop={"jobs": 250},
        targets=["ttft p99 <= 100 ms", "tpot p95 of free <= 0.4 ms", "itl p99 of gold <= 1 ms", "e2e mean <= 300 ms"],
        **changes,
    )


def test_single_requests_have_the_times_rates_and_costs_of_their_steps() -> None:
    result, serving, recording = ran(scenario())
    jobs, span_s = recording.jobs, result.simulated_s
    ttft_s, e2e_s = (jobs.first - jobs.arrival) / 1e12, (jobs.finish - jobs.arrival) / 1e12
    for times, expected in ((serving.ttft_s, ttft_s), (serving.e2e_s, e2e_s), (serving.tpot_s, (e2e_s - ttft_s) / 20)):
        assert times is not None
        assert times.mean.value == pytest.approx(expected.mean(), rel=1e-9)
        assert times.p99.value == pytest.approx(expected.max(), rel=1e-9)
    # Gaps are pooled: their mean is that of all requests, which have equally many.
    assert serving.itl_s is not None and serving.tpot_s is not None
    assert serving.itl_s.mean.value == pytest.approx(serving.tpot_s.mean.value, rel=1e-9)
    assert serving.input_tokens_per_s == pytest.approx(300 / span_s)
    assert serving.output_tokens_per_s == pytest.approx(63 / span_s)
    rent = 0.72 / 3600 * span_s
    cost = serving.cost_per_million_usd
    assert (cost.input, cost.output, cost.total) == pytest.approx((rent / 3e-4, rent / 6.3e-5, rent / 3.63e-4))
    assert serving.energy_per_output_token_j == pytest.approx(result.energy_j / 63)
    # One sequence at a time: it is present as long as the device is busy, and needs room for all its tokens.
    (entry,) = serving.entries
    assert entry.mean_sequences == pytest.approx(entry.busy) == pytest.approx(e2e_s.sum() / span_s)
    assert serving.kv_peak == 121 / serving.kv_capacity_tokens["l4"] == entry.kv_peak
    assert (serving.slo_attainment, serving.goodput_per_s, serving.prefix_hit_rate) == (None, None, None)
    assert result.to_dict()["serving"]["tpot_s"]["p50"].keys() == {"value", "low", "high", "model_low", "model_high"}


def test_faster_and_slower_steps_carry_the_error_of_a_step_through() -> None:
    result, serving, _ = ran(scenario())
    (factor,) = (row.accuracy.error_factor for row in result.model_accuracy if row.accuracy.op == "step")
    assert factor is not None and factor > 1.0
    for times in (serving.ttft_s, serving.itl_s, serving.tpot_s, serving.e2e_s):
        assert times is not None
        for estimate in times.by_name().values():
            assert isinstance(estimate, TokenEstimate) and estimate.value is not None
            # A request that is alone waits for nothing, so its times are in proportion to its steps.
            if times in (serving.itl_s, serving.tpot_s):
                assert estimate.model_low == pytest.approx(estimate.value / factor, rel=1e-6)
                assert estimate.model_high == pytest.approx(estimate.value * factor, rel=1e-6)
    # Where requests queue, TTFT changes by more than the factor; the values themselves are those of the model.
    busy = crowded()
    _, serving, _ = ran(busy)
    mean = serving.ttft_s.mean if serving.ttft_s is not None else None
    assert isinstance(mean, TokenEstimate) and mean.value is not None and mean.model_low is not None
    assert mean.value / mean.model_low > factor


def test_intervals_of_the_first_token_contain_the_error_of_what_the_engine_does_outside_of_its_steps() -> None:
    """As in `validate serving`: the wider of the steps, the range of ``frontend_s``, and ``first_token_error``."""
    data = scenario()
    for engine in ("vllm", "generic"):
        data["fleet"][0]["engine"] = engine
        result, serving, _ = ran(data)
        (factor,) = (row.accuracy.error_factor for row in result.model_accuracy if row.accuracy.op == "step")
        profile = serving_engine(engine)
        error, outside = profile.first_token_errors[DENSE].value, profile.frontend_s
        assert factor is not None and outside.high is not None
        for part in (serving, result.workloads[0].serving):
            assert part is not None and part.ttft_s is not None and part.e2e_s is not None and part.tpot_s is not None
            first, whole, token = (times.mean for times in (part.ttft_s, part.e2e_s, part.tpot_s))
            assert isinstance(first, TokenEstimate) and isinstance(whole, TokenEstimate)
            assert first.value is not None and whole.value is not None and token.value is not None
            # The first token of a request that is alone; steps are in proportion, and the time outside of them is not.
            slower_s = outside.value + (first.value - outside.value) * factor
            high = max(first.value * error, slower_s + outside.high - outside.value)
            assert first.model_high == pytest.approx(high, rel=1e-6)
            faster_s = outside.value + (first.value - outside.value) / factor
            low = min(first.value / error, max(faster_s - (outside.value - (outside.low or 0.0)), 0.0))
            assert first.model_low == pytest.approx(low, rel=1e-6)
            assert whole.model_high == pytest.approx(high + (whole.value - first.value) * factor, rel=1e-6)


def test_counts_agree_with_the_jobs_and_both_engines_with_each_other() -> None:
    result, serving, recording = ran(crowded())
    jobs, gaps = recording.jobs, recording.token_gaps
    done = jobs.status == COMPLETED
    assert jobs.prompts is not None
    span_s = result.simulated_s
    assert serving.output_tokens_per_s == pytest.approx(jobs.tokens[done].sum() / span_s)
    assert serving.input_tokens_per_s == pytest.approx(jobs.prompts[done].sum() / span_s)
    # Every token after the first of each request is the end of one gap.
    assert gaps.weights.sum() == (jobs.tokens - 1)[done].sum()
    assert serving.preemptions > 0
    parts = [part.serving for part in result.workloads if part.serving is not None]
    assert sum(part.preemptions for part in parts) == serving.preemptions
    assert serving.kv_peak is not None and 0.5 < serving.kv_peak <= 1.0
    again, other = windtunnel.run(scenario_from_data(crowded()), engine="process"), result.to_dict()
    mine = again.result.to_dict()
    assert mine["serving"] == other["serving"] and mine["workloads"] == other["workloads"]


def test_largest_gap_of_each_request_is_that_of_a_search_over_all_gaps() -> None:
    _, _, recording = ran(crowded())
    jobs, gaps = recording.jobs, recording.token_gaps
    found = largest_gaps(jobs, gaps, np.zeros(len(jobs)))
    rows = list(zip(*(getattr(gaps, n).tolist() for n in ("ticks", "end", "workload", "of")), strict=True))
    paused = 0
    for job in range(len(jobs)):
        first, finish, work, device = (int(c[job]) for c in (jobs.first, jobs.finish, jobs.workload, jobs.device))
        own = [t for t, end, _, of in rows if of == job and end > first]
        shared = [t for t, end, w, of in rows if of == -1 - device and w == work and first < end <= finish]
        assert found[job] == max([0, *own, *shared])
        paused += bool(own)
    assert paused  # preempted requests have a gap of their own
    for limit_s in (0.0, 0.0005, 0.001, 0.002, 1.0):
        judged = largest_gaps(jobs, gaps, np.zeros(len(jobs)), beyond_s=limit_s)
        assert np.array_equal(judged / 1e12 <= limit_s, found / 1e12 <= limit_s)
        beyond = found / 1e12 > limit_s
        assert np.array_equal(judged[beyond], found[beyond])


def test_attainment_counts_each_request_against_every_limit_that_concerns_it() -> None:
    result, serving, recording = ran(crowded())
    jobs = recording.jobs
    ttft, e2e = (jobs.first - jobs.arrival) / 1e12, (jobs.finish - jobs.arrival) / 1e12
    tpot, itl = (e2e - ttft) / (jobs.tokens - 1), largest_gaps(jobs, recording.token_gaps, e2e) / 1e12
    gold = jobs.workload == 0
    met = (ttft <= 0.1) & (e2e <= 0.3) & np.where(gold, itl <= 0.001, tpot <= 0.0004)
    assert 0.0 < met.mean() < 1.0
    assert serving.slo_attainment == pytest.approx(met.mean())
    assert serving.goodput_per_s == pytest.approx(met.sum() / result.simulated_s)
    of_gold = result.workloads[0].serving
    assert of_gold is not None and of_gold.slo_attainment == pytest.approx(met[gold].mean())


def test_a_target_on_attainment_has_an_interval_and_cost_is_judged_in_usd() -> None:
    targets = [
        "ttft p99 <= 1 s", "slo_attainment >= 90 %", "slo_attainment of gold >= 1 %",
        "cost_per_million_output_tokens <= 0.001 USD", "tpot mean <= 1 s", "e2e p50 <= 100 s",
    ]  # fmt: skip
    data = crowded() | {"targets": targets, "stop": {"jobs": 600}}
    for replications in (1, 3):
        result, serving, _ = ran(data, replications=replications)
        verdicts = {verdict.text: verdict for verdict in result.targets}
        attained, cost = verdicts[targets[1]], verdicts[targets[3]]
        assert attained.value == serving.slo_attainment and attained.low is not None and attained.high is not None
        assert 0.0 <= attained.low <= attained.value <= attained.high <= 1.0
        assert not cost.met and cost.unit == "USD" and cost.value == serving.cost_per_million_usd.output
        assert all(verdicts[text].met for text in targets[4:])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"targets": ["slo_attainment >= 95 %"]}, "each request has to meet"),
        ({"targets": ["slo_attainment of chat >= 95 %", "throughput >= 1 /s"]}, "each request has to meet"),
        ({"targets": ["tpot p98 <= 1 s"]}, "tpot has no 'p98'"),
        ({"targets": ["slo_attainment >= 95", "ttft p99 <= 1 s"]}, "is a share"),
        (
            {"targets": ["cost_per_million_output_tokens <= 1 USD"], "fleet": [{"device": "l4"}]},
            "requires `price`",
        ),
    ],
)
def test_targets_that_cannot_be_judged_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        windtunnel.run(scenario_from_data(scenario(**changes)))


def test_a_target_on_requests_needs_a_workload_that_generates() -> None:
    data = scenario(targets=["e2e p99 <= 1 s"], policy="fifo")
    data["workload"][0]["ops"] = [{"service": {"distribution": "deterministic", "mean": "1 ms"}}]
    with pytest.raises(InputError, match="no workload generates tokens"):
        scenario_from_data(data)


def test_summary_and_report_keep_both_kinds_of_intervals_apart() -> None:
    data = crowded() | {"stop": {"jobs": 800}}
    for work in data["workload"]:
        work["arrivals"]["rate"] = "60 /s"
    result, serving, recording = ran(data)
    times = serving.tpot_s
    assert times is not None and isinstance(times.mean, TokenEstimate)
    chance, model = (
        value_range(times.mean.low, times.mean.high, "s"),
        value_range(times.mean.model_low, times.mean.model_high, "s"),
    )
    assert chance and model and chance != model
    rows = {line.split()[0]: line for line in summary(result).split("\nmodel error")[1].splitlines() if line.strip()}
    assert model in rows["TPOT"] and chance not in rows["TPOT"]
    text = summary(result)
    for words in ("meet every limit", "requests/s", "per million output tokens", "per output token"):
        assert words in " ".join(text.split())
    page = unescape(render(result, recording))
    assert f"chance {chance} · model {model}" in page
    for words in ("SLO attainment", "Goodput", "KV cache peak", "Requests by workload", "TTFT p95", "Mean sequences"):
        assert words in page


@pytest.mark.parametrize("group", [{}, {"tensor": 2}, {"pipeline": 2}, {"tensor": 2, "pipeline": 2}], ids=str)
@pytest.mark.parametrize(("prompt", "output"), [(100, 21), (1000, 200)])
def test_shares_of_peaks_follow_from_the_weights_and_the_kv_cache(
    prompt: int, output: int, group: dict[str, int]
) -> None:
    """Two FLOP a weight and token, four for each head dimension and pair of tokens; each weight read once a step."""
    data = scenario()
    data["workload"][0]["ops"][0]["generate"].update(prompt=prompt, output=output)
    if group:
        data["fleet"][0]["group"] = group
    result, serving, _ = ran(data)
    (entry,) = serving.entries
    assert entry.peak_flops is not None and entry.peak_bandwidth is not None
    device_seconds = result.simulated_s * math.prod(group.values()) / 3
    flops = 2 * (WEIGHTS * (prompt + output - 1) + HEAD * output) + flops_of_attention(range(1, prompt + output))
    assert entry.peak_flops * device_seconds * 121e12 == pytest.approx(flops)  # of an L4 in float16, from its YAML
    steps = -(-prompt // 512) + output - 1
    kv_bytes = 2 * 2 * 128 * 4 * sum(range(prompt + 1, prompt + output))
    moved = 2 * (WEIGHTS * steps + HEAD * output) + kv_bytes
    # Inputs and outputs of the operations, some on each device of a group, add a few per cent.
    assert moved <= entry.peak_bandwidth * device_seconds * 300e9 < 1.06 * moved


@pytest.mark.parametrize("window", [64, 256, None])
@pytest.mark.parametrize(("prompt", "output"), [(100, 21), (6000, 100)])
def test_a_window_of_attention_bounds_the_flops_of_each_token(
    prompt: int, output: int, window: int | None, tmp_path: Path
) -> None:
    config = {
        "model_type": "mistral", "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096,
        "max_position_embeddings": 32768, "torch_dtype": "float16", "tie_word_embeddings": False,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": window,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = scenario(models={"chat": {"config": str(tmp_path / "config.json"), "weights": "float16"}})
    data["workload"][0]["ops"][0]["generate"].update(prompt=prompt, output=output)
    result, serving, _ = ran(data)
    (entry,) = serving.entries
    assert entry.peak_flops is not None
    linear = 2 * (WEIGHTS * (prompt + output - 1) + HEAD * output)
    attended = (min(token, window or token) for token in range(1, prompt + output))
    attention = entry.peak_flops * result.simulated_s / 3 * 121e12 - linear
    assert attention == pytest.approx(flops_of_attention(attended))


def test_an_admission_limit_loses_as_many_jobs_as_queueing_theory_says() -> None:
    """M/M/1/K with K = 4 (one in service, at most three wait): Erlang's loss formula for finite queues."""
    load, places, jobs = 0.9, 4, 40_000
    work = {
        "name": "calls",
        "arrivals": {"process": "poisson", "rate": f"{load * 1000} /s"},
        "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
        "max_waiting": places - 1,
    }
    data = {
        "schema": 1, "name": "loss", "fleet": [{"device": "server"}], "workload": [work], "policy": "fifo",
        "stop": {"jobs": jobs},
    }  # fmt: skip
    result = windtunnel.run(scenario_from_data(data)).result
    blocked = (1 - load) * load**places / (1 - load ** (places + 1))
    assert result.jobs.dropped / jobs == pytest.approx(blocked, rel=0.05)
    assert result.jobs.completed + result.jobs.dropped == jobs
    # The load of an overloaded system that rejects is bounded, so its times have a mean.
    work["arrivals"]["rate"] = "3000 /s"
    overloaded = windtunnel.run(scenario_from_data(data)).result
    assert overloaded.statistics.steady_state != "unstable" and overloaded.latency_s.mean.value is not None


def test_rejected_requests_are_counted_and_do_not_attain() -> None:
    data = crowded()
    data["workload"][1]["max_waiting"] = 2
    result, serving, recording = ran(data)
    of_gold, of_free = (part.serving for part in result.workloads)
    assert of_gold is not None and of_free is not None
    dropped = int((recording.jobs.status == DROPPED).sum())
    assert serving.rejected == of_free.rejected == result.jobs.dropped == dropped > 0 == of_gold.rejected
    assert serving.slo_attainment is not None and serving.slo_attainment <= 1 - dropped / result.jobs.arrived


def test_users_who_do_not_think_cannot_be_rejected() -> None:
    data = scenario()
    data["workload"][0] |= {"arrivals": {"process": "closed", "users": 4, "think": {"mean": "0 s"}}, "max_waiting": 1}
    with pytest.raises(InputError, match="without end"):
        scenario_from_data(data)


def test_an_overloaded_class_does_not_void_the_class_that_goes_first() -> None:
    def class_of(name: str, priority: int, rate: int, output: int) -> dict[str, Any]:
        return {
            "name": name,
            "priority": priority,
            "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
            "ops": [{"generate": {"model": "chat", "prompt": 60, "output": output}}],
        }

    data = scenario(
        workload=[class_of("gold", 1, 1000, 10), class_of("free", 0, 12000, 100)],
        policy={
            "route": "central", "order": "priority",
            "batch": {"kind": "continuous", "size": 8, "tokens": 256, "memory": 0.9},
        },
        stop={"jobs": 6000},
        targets=["ttft p99 of gold <= 10 s", "ttft p99 of free <= 10 s"],
    )  # fmt: skip
    result, _, _ = ran(data)
    gold, free = result.workloads
    assert result.statistics.steady_state == free.statistics.steady_state == "unstable"
    assert gold.statistics.steady_state in ("reached", "not shown")
    assert gold.latency_s.p95.value is not None and free.latency_s.p95.value is None
    of_gold, of_free = result.targets
    assert of_gold.met and of_gold.value is not None
    assert not of_free.met and of_free.value is None and str(of_free.reason).startswith("unstable")
    assert any("except those of gold" in note for note in result.notes)


def test_the_tables_of_vllms_flags_and_metrics_name_keys_that_exist() -> None:
    """Every word of their columns of ours is a key or a value of a scenario, or a key of a result."""
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    known = set(re.findall(r'"(\w+)"', json.dumps(json_schema()))) | {*FORMAT_BITS, *OF_REQUESTS}
    known |= {"NAME", "R", "C", "N", "json", "ms", "s", "p99", "generate", "shared_prefix"}
    result, _, _ = ran(scenario())
    results = {"result", "json", *re.findall(r'"(\w+)"', json.dumps(result.to_dict()))}
    flags, metrics = page.split("### Flags of vLLM")[1].split("### Names of metrics")
    for text, column, words in ((flags, 2, known), (metrics.split("## ")[0], 1, results)):
        rows = [row.split("|") for row in text.splitlines() if row.startswith("|") and "---" not in row]
        assert len(rows) > 10
        for row in rows:
            for code in re.findall(r"`([^`]+)`", row[column]):
                unknown = set(re.findall(r"[A-Za-z]\w*", code)) - words
                assert not unknown, (code, unknown)
