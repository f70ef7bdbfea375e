"""`windtunnel predict step`: its columns, its defaults, its errors, and the table form."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.ops import one_row
from windtunnel.core.step_op import Step, parse_weights
from windtunnel.library.steps import StepPricing
from windtunnel_models.engines import serving_engine
from windtunnel_models.models import known_architecture, read_architecture

Command = Callable[..., CompletedProcess[str]]
H100 = "h100-sxm-80gb"
LLAMA: Mapping[str, object] = {"model": "llama-3.1-70b", "tensor": 8, "decode": 64, "context": 2048}
SMALL: Mapping[str, object] = {"model": "llama-3.1-8b", "decode": 16, "context": 512}


def words(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def step(values: Mapping[str, object], device: str = H100) -> float:
    return windtunnel.predict("step", device, values).duration_s


def test_the_json_of_a_step_has_the_cost_columns_and_parts_that_add_up(windtunnel_command: Command) -> None:
    for more in ({}, {"tensor": 4, "pipeline": 2}):
        printed = windtunnel_command(
            "predict", "step", "--device", H100, *words({**LLAMA, **more}), "--format", "json"
        ).stdout
        found: dict[str, Any] = json.loads(printed)
        assert {"duration_s", "duration_low_s", "duration_high_s", "power_w", "energy_j", "bound", "provenance"} <= set(
            found
        )
        assert found["context"] == {"dispatch": "graph", "clock": "sustained", "cache": "cold"}
        assert all({"part", "duration_s", "bytes", "flops", "bound"} <= set(part) for part in found["parts"])
        assert sum(part["duration_s"] for part in found["parts"]) == pytest.approx(found["duration_s"])
        # Two operations for each weight of a product and token, shared by the 8 devices.
        model = known_architecture("llama-3.1-70b")
        weights = model.parameters - model.vocabulary * model.width
        products = sum(part["flops"] for part in found["parts"] if part["op"] == "gemm")
        assert products == pytest.approx(2 * 64 * weights / 8, rel=0.01)
        # No part moves its bytes faster than the memory of an H100.
        assert all(part["duration_s"] > part["bytes"] / 3.36e12 for part in found["parts"] if part["op"] == "gemm")


@pytest.mark.parametrize("name", ["server", "qat-8970", "alveo-u50"])
def test_a_kind_that_runs_no_decoder_is_refused(name: str, windtunnel_command: Command) -> None:
    done = windtunnel_command("predict", "step", "--device", name, "model=llama-3.1-8b", "decode=1", expect=2)
    assert "does not execute attention, as llama-3.1-8b does" in done.stderr


def test_a_table_names_the_file_of_a_configuration_that_is_wrong(tmp_path: Path, windtunnel_command: Command) -> None:
    config, source = tmp_path / "wrong.json", tmp_path / "in.csv"
    config.write_text('{"model_type": "bert"}')
    source.write_text(f"model,decode\n{config},1\n")
    command = ("predict", "step", "--device", H100, "--table", source, "--out", tmp_path / "out.csv")
    assert f"{config}: model_type: unknown model_type 'bert'" in windtunnel_command(*command, expect=2).stderr


def test_the_text_of_a_step_names_kinds_of_operation_and_collectives(windtunnel_command: Command) -> None:
    printed = windtunnel_command("predict", "step", "--device", H100, *words(LLAMA)).stdout
    assert "on a group of 8 devices h100-sxm-80gb" in printed and "90% interval" in printed
    for word in ("GEMM", "attention", "all_reduce", "memory-bound kernels", "of collectives", "64 sequences decode"):
        assert word in printed, word


def test_the_table_form_gives_every_row_what_the_single_form_gives(tmp_path: Path, windtunnel_command: Command) -> None:
    rows = [
        {"model": "llama-3.1-70b", "tensor": "8", "decode": "64", "context": "2048", "weights": "", "engine": "vllm"},
        {"model": "llama-3.1-8b-instruct", "decode": "4", "context": "100.5", "kv_dtype": "fp8"},
        {"model": "qwen3-30b-a3b", "tensor": "2", "expert": "2", "decode": "16", "context": "64", "prefill": "512"},
        {
            "model": "qwen3-30b-a3b",
            "attention_data": "2",
            "expert": "2",
            "decode": "16",
            "context": "64",
            "tensor": "0",
        },
        {"model": "deepseek-v3-fp8", "tensor": "16", "decode": "8", "context": "900", "weights": "fp8/fp8_block"},
        {"model": "llama-3.1-70b", "tensor": "8", "decode": "3", "context": "70", "weights": "", "engine": "vllm"},
    ]
    names = sorted({name for row in rows for name in row})
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    with source.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)
    windtunnel_command("predict", "step", "--device", H100, "--table", source, "--out", out)
    with out.open() as file:
        found = list(csv.DictReader(file))
    assert [row["model"] for row in found] == [row["model"] for row in rows]
    for row, given in zip(found, rows, strict=True):
        alone = windtunnel.predict("step", H100, {name: value for name, value in given.items() if value})
        assert float(row["duration_s"]) == pytest.approx(alone.duration_s), given
        assert float(row["duration_high_s"]) == pytest.approx(alone.duration_high_s), given
        assert float(row["power_w"]) == pytest.approx(alone.power_w), given
        assert row["bound"] == alone.bound


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"tensor": 5},
            "tensor: the 64 query heads of llama-3.1-70b cannot be divided by tensor: 5; expected tensor of 1",
        ),
        ({"decode": "inf"}, "decode is inf; expected a finite number from 0"),
        ({"decode": 0}, "decode: the step has neither sequences that decode nor tokens of a prompt"),
        ({"model": "llama-3.1-80b"}, "did you mean 'llama-3.1-8b'?"),
        ({"engine": "vlm"}, "did you mean 'vllm'?"),
        ({"weights": "fp9"}, "weights: 'fp9' is not a format of weights"),
        ({"weights": "fp8/"}, "expected FORMAT or LINEAR/EXPERTS"),
        ({"weights": "fp8/fp8/fp8"}, "expected FORMAT or LINEAR/EXPERTS"),
        ({"kv_dtype": "fp4"}, "kv_dtype: 'fp4' is not a format of kv_dtype"),
        ({"context": 131_073}, "context: 131,073 tokens of context are more than llama-3.1-70b supports"),
        ({"prefill": 1000, "prefill_context": 131_000}, "prefill: 132,000 tokens of context"),
        ({"tensor": 1}, "tensor: 2 or more"),
        ({"model": "missing.json"}, "missing.json"),
        ({"model": "qwen3-30b-a3b", "weights": "int8", "tensor": 2}, "weights: 'int8' is not a valid dtype"),
        ({"model": "deepseek-v2-lite", "kv_dtype": "int8"}, "kv_dtype: 'int8' is not a valid kv_dtype"),
        ({"expert": 3}, "expert: 3 parts of the experts do not divide 8 devices"),
    ],
    ids=str,
)
def test_a_step_that_is_refused_names_the_column_and_what_would_fit(
    more: Mapping[str, object], message: str, windtunnel_command: Command
) -> None:
    done = windtunnel_command("predict", "step", "--device", H100, *words({**LLAMA, **more}), expect=2)
    assert message in done.stderr, done.stderr


def test_a_table_reports_every_refused_step_at_once(tmp_path: Path, windtunnel_command: Command) -> None:
    source = tmp_path / "in.csv"
    source.write_text(
        "model,tensor,decode,context,weights\nllama-3.1-8b,1,4,10,\nllama-3.1-8b,5,4,10,\nllama-9,1,4,10,\n"
        "llama-3.1-8b,1,0,10,\nllama-3.1-8b,1,4,10,fp7\nllama-3.1-70b,1,4,10,\nllama-3.1-8b,1,4,200000,\n"
    )
    out = tmp_path / "out.csv"
    printed = windtunnel_command("predict", "step", "--device", H100, "--table", source, "--out", out, expect=2).stderr
    assert "6 of 7 rows are refused" in printed and not out.exists()
    for line in range(3, 9):
        assert f"line {line}:" in printed, printed


def test_empty_and_zero_group_columns_are_the_defaults() -> None:
    plain = step(SMALL)
    zeros = {"tensor": 0, "pipeline": 0, "attention_data": 0, "expert": 0, "expert_tensor": 0}
    assert step({**SMALL, **zeros, "weights": "", "kv_dtype": ""}) == plain
    assert step({**SMALL, **dict.fromkeys(zeros, ""), "engine": ""}) == plain
    assert step({**SMALL, "weights": "bfloat16", "kv_dtype": "bfloat16", "engine": "generic"}) == plain
    assert step({**SMALL, "dispatch": "graph", "clock": "sustained"}) == plain
    assert step({**SMALL, "model": "meta-llama/Llama-3.1-8B-Instruct"}) == plain
    assert step({**SMALL, "weights": "fp8"}) == step({**SMALL, "model": "llama-3.1-8b-fp8"}) < plain


def test_weights_of_experts_may_differ_from_the_others() -> None:
    own = known_architecture("qwen3-30b-a3b").weights
    assert parse_weights("fp8/nvfp4", own).linear == "fp8" and parse_weights("fp8/nvfp4", own).experts == "nvfp4"
    assert parse_weights("fp8", own).experts == "fp8" and parse_weights("", own) == own
    moe = {"model": "qwen3-30b-a3b", "decode": 16, "context": 512}
    seconds = [step({**moe, "weights": text}) for text in ("fp8/fp8_block", "bfloat16/fp8_block", "bfloat16")]
    assert seconds[0] < seconds[1] < seconds[2]


def test_a_model_may_be_a_config_file(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 500000.0,
    }  # fmt: skip
    path = tmp_path / "mine" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    assert read_architecture(path).name == "mine"
    assert step({**SMALL, "model": str(path)}) == step(SMALL)
    path.write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        read_architecture(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="not a JSON object"):
        read_architecture(path)


def test_a_step_takes_longer_with_more_of_anything() -> None:
    pricing = StepPricing(windtunnel.catalogue().device(H100))
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite"):
        for column, values in (
            ("decode", (1, 4, 32, 256)),
            ("context", (1, 1000, 8000, 32000)),
            ("prefill", (0, 256, 4096)),
            ("prefill_context", (0, 2048, 8192)),
        ):
            fixed = {"model": name, "decode": 8, "context": 4000, "prefill": 0 if column == "context" else 1024}
            costs = pricing.costs([one_row(Step, {**fixed, column: value}) for value in values], intervals=False)
            seconds = [float(cost.duration_s[0]) for cost in costs]
            # Measured kernels have small steps back where a library switches.
            assert all(b > 0.995 * a for a, b in zip(seconds, seconds[1:], strict=False)), (name, column, seconds)
            assert seconds[-1] > 1.02 * seconds[0], (name, column, seconds)


def test_engines_choose_the_all_reduce_and_fuse_norms_into_it() -> None:
    names = ("generic", "vllm", "sglang", "trtllm")
    # Without host time and factors.
    bare = StepPricing(
        windtunnel.catalogue().device(H100), {name: replace(serving_engine(name), values={}) for name in names}
    )

    def operations(values: Mapping[str, object]) -> list[float]:
        rows = [one_row(Step, {**values, "engine": name}) for name in names]
        return [float(cost.duration_s[0]) for cost in bare.costs(rows)]

    generic, vllm, sglang, trtllm = operations({**LLAMA, "decode": 16})
    assert max(vllm, trtllm) < sglang < generic
    assert len(set(operations(SMALL))) == 1
    assert step({**SMALL, "engine": "generic"}) == operations(SMALL)[0]


def test_more_tokens_than_fit_beside_the_weights_are_noted(tmp_path: Path, windtunnel_command: Command) -> None:
    crowded = {**SMALL, "decode": 4000, "context": 4000}
    note = "more memory than the weights leave"
    assert note in windtunnel_command("predict", "step", "--device", H100, *words(crowded)).stderr
    assert note not in windtunnel_command("predict", "step", "--device", H100, *words(SMALL)).stderr
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("model,decode,context\nllama-3.1-8b,4,10\nllama-3.1-8b,4000,4000\n")
    printed = windtunnel_command("predict", "step", "--device", H100, "--table", source, "--out", out).stderr
    assert f"line 3: the sequences take {note}" in printed


def test_ops_describes_the_columns_of_a_step(windtunnel_command: Command) -> None:
    (found,) = json.loads(windtunnel_command("ops", "step", "--format", "json").stdout)
    columns = {column["name"]: column for column in found["columns"]}
    assert list(columns) == [
        "model", "tensor", "pipeline", "attention_data", "expert", "expert_tensor", "decode", "context", "prefill",
        "prefill_context", "weights", "kv_dtype", "engine", "query_tokens", "draft", "draft_tensor", "adapters", "rank",
        "dispatch", "clock", "cache",
    ]  # fmt: skip
    assert columns["clock"]["default"] == "sustained" and columns["dispatch"]["default"] == "graph"
    assert columns["model"]["required"] and not columns["weights"]["required"]
    assert "gpu" in found["kinds"]


def test_equal_steps_of_many_tables_cost_the_same_together() -> None:
    pricing = StepPricing(windtunnel.catalogue().device("b200-sxm-180gb"))
    rows = [
        one_row(Step, {"model": name, "tensor": tensor, "decode": 8, "context": 800, "weights": weights})
        for name in ("llama-3.1-8b", "qwen3-30b-a3b")
        for tensor in (1, 4)
        for weights in ("", "nvfp4", "int4")
    ]
    together = [float(cost.duration_s[0]) for cost in pricing.costs(rows)]
    alone = [float(pricing.cost(row).duration_s[0]) for row in rows]
    assert np.allclose(together, alone)


def test_a_calibration_of_products_serves_steps_whatever_wrote_their_activations(
    tmp_path: Path, windtunnel_command: Command
) -> None:
    """The residual is of products as they are measured: a calibration slows both forms alike."""
    table, overlay = tmp_path / "slow.csv", tmp_path / "overlay.yaml"
    lines = ["m,n,k,dtype,latency_s"]
    for m in (1, 16, 512):
        for n, k in ((4096, 4096), (4096, 14336), (28672, 4096), (6144, 4096)):
            one = windtunnel.predict("gemm", "l4", {"m": m, "n": n, "k": k, "dtype": "fp8"}).duration_s
            lines.append(f"{m},{n},{k},fp8,{2 * one}")
    table.write_text("\n".join(lines) + "\n")
    windtunnel_command("calibrate", "gemm", table, "--device", "l4", "--out", overlay)
    assert "batch,activations" not in overlay.read_text()  # as in overlays of before there was this column
    for word in ("wide", "narrow"):
        shape = {"m": 16, "n": 8192, "k": 4096, "dtype": "fp8", "activations": word}
        slow, own = (windtunnel.predict("gemm", "l4", shape, calibration=c).duration_s for c in (str(overlay), None))
        assert 1.6 < slow / own < 2.4, word
    values = {"model": "llama-3.1-8b", "decode": 16, "context": 512, "weights": "fp8"}
    slow, own = (windtunnel.predict("step", "l4", values, calibration=c).duration_s for c in (str(overlay), None))
    assert 1.4 < slow / own < 2.2
    done = windtunnel_command("calibrate", "step", table, "--device", "l4", "--out", overlay, expect=2)
    assert "a step is priced by its operations" in done.stderr


def test_decoders_in_float16_run_where_there_is_no_bfloat16() -> None:
    row = {"model": "llama-3.1-8b", "decode": 4, "context": 500}
    old = StepPricing(windtunnel.catalogue().device("v100-sxm-32gb"))
    with pytest.raises(InputError, match="bfloat16") as refused:
        old.one(one_row(Step, row))
    assert refused.value.nearest == "float16"
    cost = old.one(one_row(Step, {**row, "weights": "float16"}))
    assert cost.duration_s > 16e9 / 900e9  # its weights over the bandwidth
    new = StepPricing(windtunnel.catalogue().device("h100-sxm-80gb"))
    both = [new.one(one_row(Step, {**row, "weights": name})).duration_s for name in ("bfloat16", "float16")]
    assert both[0] == pytest.approx(both[1], rel=0.05)
