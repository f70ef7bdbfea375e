"""`windtunnel validate --against`: exit codes, the JSON that outside scripts read, and the files it leaves."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app import validate as validating
from windtunnel.cli.main import cli, main
from windtunnel.core.errors import InputError
from windtunnel.core.results.validation import ModelBasis, OmittedPoints, OperationResult
from windtunnel.report.validation import text
from windtunnel.validation.budget import Budget

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "scenarios" / "measurements" / "a100-attention.csv"
CONTRACT = ("device", "op", "n", "mape", "median_ape", "p90_ape", "bias", "noise_floor")


def command(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `windtunnel validate`."""
    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        try:
            main(["validate", *(str(argument) for argument in arguments)])
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    """Measurements that are what the model of an L4 says, but those of t4 twice as long."""
    lines = ["sku,n,latency_s"]
    for sku, factor in (("l4", 1.0), ("t4", 2.0)):
        for n in (10**3, 10**5, 10**7):
            lines.append(f"{sku},{n},{factor * windtunnel.predict('vector_add', sku, {'n': n}).duration_s!r}")
    path = tmp_path / "truth.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_measured_steps_are_compared_with_those_that_predict_prices(tmp_path: Path) -> None:
    """Steps are no operation of a device; the columns are those of `predict step`, and each row has its own model."""
    given = [("llama-3.1-8b", 8, 512, 0, 1.0), ("llama-3.1-8b", 0, 0, 512, 2.0), ("qwen3-0.6b", 16, 1024, 0, 0.5)]
    lines = ["model,decode,context,prefill,latency_s"]
    for model, decode, context, prefill, factor in given:
        values = {"model": model, "decode": decode, "context": context, "prefill": prefill}
        seconds = factor * windtunnel.predict("step", "h200-sxm-141gb", values).duration_s
        lines.append(f"{model},{decode},{context},{prefill},{seconds!r}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    asked = ("--against", path, "--op", "step", "--device", "h200-sxm-141gb")
    code, out, err = command(*asked, "--format", "json", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    assert (found["op"], found["n"], found["mape"]) == ("step", 3, pytest.approx(0.5))
    assert found["bias"] == pytest.approx((0.0 - 0.5 + 1.0) / 3)
    again = tmp_path / "out" / "h200-sxm-141gb" / "step.csv"
    assert json.loads(command("--against", again, "--format", "json")[1])[0]["mape"] == pytest.approx(0.5)
    code, _, err = command(*asked, "--calibrate", "--out", tmp_path / "fitted")
    assert code == 1
    assert "a step is priced by its operations" in err


def test_of_a_table_only_the_rows_that_are_not_supported_are_left_out_and_power_is_compared(tmp_path: Path) -> None:
    """A context beyond the model's leaves out its row, a step that does not fit is compared with a note on it."""
    lines = ["model,decode,context,latency_s,power_w"]
    for model, decode, context, factor in (
        ("llama-3.1-8b", 8, 512, 1.25),
        ("llama-3.1-8b", 8, 8_192_000, 1.0),
        ("llama-3.1-8b", 300, 8192, 1.0),
        ("llama-3.1-8b", 1, 512, 0.8),
    ):
        values = {"model": model, "decode": decode, "context": min(context, 131_072)}
        known = windtunnel.predict("step", "h200-sxm-141gb", values)
        power_w = "" if decode == 1 else repr(known.power_w / factor)
        lines.append(f"{model},{decode},{context},{known.duration_s / factor**2!r},{power_w}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    asked = ("--against", path, "--op", "step", "--device", "h200-sxm-141gb")
    (found,) = json.loads(command(*asked, "--format", "json")[1])
    assert found["n"] == 3
    ((left_out,), power) = (found["unsupported"], found["power"])
    assert (left_out["n"], left_out["file"], left_out["line"], left_out["lines"]) == (1, "steps.csv", 3, [3])
    assert (power["n"], power["mape"], power["bias"]) == (2, pytest.approx(0.125), pytest.approx(0.125))
    assert (power["coverage"], power["provenance"]) == (1.0, "assumed")
    assert found["too_large"] == {"n": 1, "file": "steps.csv", "lines": [4]}
    out = command(*asked, "--out", tmp_path / "out")[1]
    assert "step: 1 unsupported row left out (steps.csv:3): context: 8,192,000 tokens" in out
    assert "step: power of 2 rows: MAPE 12.5%, bias +12.5%, 100% within a factor of 1.50" in out
    assert "step: 1 row (steps.csv:4): the sequences take more memory than the weights leave on the group" in out
    assert "large error of time: model=llama-3.1-8b decode=8 context=512 (steps.csv:2): modelled" in out
    assert "(steps.csv:3): context" in (tmp_path / "out" / "validation.html").read_text()


def test_the_json_is_one_list_with_the_keys_of_the_contract_first(truth: Path) -> None:
    code, out, err = command("--against", truth, "--op", "vector_add", "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [tuple(one)[: len(CONTRACT)] for one in found] == [CONTRACT, CONTRACT]
    assert [(one["device"], one["op"], one["n"]) for one in found] == [("l4", "vector_add", 3), ("t4", "vector_add", 3)]
    assert (found[0]["mape"], found[0]["bias"], found[0]["noise_floor"]) == (0.0, 0.0, None)
    assert (found[1]["mape"], found[1]["bias"]) == (pytest.approx(0.5), pytest.approx(-0.5))
    for one in found:
        check(one)


def check(one: dict[str, Any]) -> None:
    """An object of the list has the keys and types that are written down in docs/validation.md."""
    share = (float, type(None))
    assert isinstance(one["device"], str)
    assert isinstance(one["op"], str)
    for part in [one, *one["by_bound"], *one["by_dtype"]]:
        assert isinstance(part["n"], int)
        assert isinstance(part["noise_points"], int)
        for key in ("mape", "median_ape", "p90_ape", "bias", "noise_floor", "coverage"):
            assert isinstance(part[key], share), key
    assert sum(part["n"] for part in one["by_bound"]) == one["n"]
    assert set(one["model"]) == {"basis", "text", "fitted_rows", "provenance"}
    assert all(isinstance(source, str) for source in one["sources"])
    assert set(one["worst"][0]) == {
        "columns", "measured_s", "modelled_s", "error", "bound", "inside", "source", "line", "file",
    }  # fmt: skip
    assert (one["suspect"], one["unsupported"]) == ([], [])


def test_a_threshold_that_is_missed_is_exit_1_and_the_answer_is_printed_all_the_same(truth: Path) -> None:
    for device, limit, code in (("l4", 0, 0), ("t4", 50.1, 0), ("t4", 49.9, 1)):
        given = ("--against", truth, "--op", "vector_add", "--device", device, "--max-mape", limit)
        done, out, err = command(*given, "--format", "json")
        assert done == code
        assert len(json.loads(out)) == 1
        assert ("vector_add on t4: MAPE 50.0% exceeds --max-mape 49.9%" in err) == bool(code)


def test_software_that_is_compared_with_a_device_is_named(truth: Path) -> None:
    rows = validating.read(truth, op="vector_add")
    results, _ = validating.judged(rows, validating.environment(), software={"truth.csv"})
    assert [result.software for result in results if isinstance(result, OperationResult)] == [["truth.csv"]] * 2
    assert "truth.csv is software on this host's processor: its times tell nothing about a t4" in text(results)
    hosts = [replace(row, device="host@opencl") for row in rows]
    results, _ = validating.judged(hosts, validating.environment(), software={"truth.csv"})
    assert "software" not in text(results)


def test_nothing_to_judge_by_is_no_pass(truth: Path) -> None:
    lines = truth.read_text().splitlines()
    truth.write_text("\n".join([f"{lines[0]},suspect", *(f"{line},hot" for line in lines[1:])]) + "\n")
    code, out, err = command("--against", truth, "--op", "vector_add", "--max-mape", 90)
    assert code == 1
    assert "vector_add on l4: every measurement is suspect" in err
    assert "suspect measurement (truth.csv:2), excluded from all statistics: hot" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--op", "vector_ad"), "did you mean 'vector_add'?"),
        ((), "truth.csv:1: the operation is not stated"),
        (("--op", "vector_add", "--device", "a10"), "--device: no row is of 'a10'"),
        (("--op", "vector_add", "--context", "clok=burst"), "did you mean 'clock'?"),
        (("--op", "vector_add", "--calibration", "nowhere.yaml"), "nowhere.yaml"),
        (("--op", "vector_add", "--max-mape", "nan"), "--max-mape: this is nan"),
        (("--op", "gemm"), "truth.csv:1: the table has no column 'm', which gemm needs"),
        (("--op", "sign"), "l4 is a gpu, which does not run sign"),
    ],
)
def test_wrong_input_is_exit_2_with_what_is_wrong(arguments: tuple[str, ...], said: str, truth: Path) -> None:
    code, out, err = command("--against", truth, *arguments, "--format", "json")
    assert code == 2
    assert out == ""
    assert said in err


def test_the_model_may_be_another_device_or_have_another_calibration(truth: Path) -> None:
    given = ("--against", truth, "--op", "vector_add", "--format", "json")
    (other,) = json.loads(command(*given, "--device", "l4", "--as", "h100-sxm-80gb")[1])
    assert other["device"] == "h100-sxm-80gb"
    assert other["sources"] == ["l4 in truth.csv"]
    assert other["bias"] < 0.0  # what took an L4 so long takes an H100 less
    published = ("--against", PUBLISHED, "--op", "attention", "--format", "json")
    (fitted,) = json.loads(command(*published)[1])
    (bare,) = json.loads(command(*published, "--calibration", "none")[1])
    assert (fitted["model"]["basis"], bare["model"]["basis"]) == ("measured", "transfer")
    assert bare["mape"] > 3 * fitted["mape"]
    assert bare["noise_floor"] == fitted["noise_floor"] is not None


def test_published_measurements_are_within_their_noise_a_few_times_over() -> None:
    (one,) = json.loads(command("--against", PUBLISHED, "--op", "attention", "--format", "json")[1])
    check(one)
    assert one["n"] == 100
    assert one["noise_points"] == 20
    assert 0.005 < one["noise_floor"] < one["mape"] < 0.05


def test_what_is_written_can_be_validated_and_calibrated_again(truth: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ("--op", "vector_add", "--format", "json")
    code, first, _ = command("--against", truth, *given, "--out", out)
    assert code == 0
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert files == ["l4/vector_add.csv", "t4/vector_add.csv", "validation.html", "validation.json"]
    data = json.loads((out / "validation.json").read_text())
    assert data["results"] == json.loads(first)
    assert data["rows"] == {"l4/vector_add.csv": 3, "t4/vector_add.csv": 3}
    assert data["environment"]["command"].startswith("windtunnel validate --against ")
    assert data["environment"]["versions"]["windtunnel"]
    figures = ("n", "mape", "bias")
    again = json.loads(command("--against", out / "validation.json", "--format", "json")[1])
    assert [[one[key] for key in figures] for one in again] == [
        [one[key] for key in figures] for one in data["results"]
    ]
    (t4,) = json.loads(command("--against", out / "t4" / "vector_add.csv", "--format", "json")[1])
    assert [t4[key] for key in figures] == [data["results"][1][key] for key in figures]


def test_suspect_rows_are_written_apart(truth: Path, tmp_path: Path) -> None:
    lines = truth.read_text().splitlines()
    truth.write_text("\n".join([f"{lines[0]},suspect", f"{lines[1]},hot", *(f"{line}," for line in lines[2:])]) + "\n")
    out = tmp_path / "out"
    assert command("--against", truth, "--op", "vector_add", "--device", "l4", "--out", out)[0] == 0
    assert len((out / "l4" / "vector_add.csv").read_text().splitlines()) == 3
    (row,) = (out / "l4" / "vector_add.suspect.csv").read_text().splitlines()[1:]
    assert row.endswith(",hot")


def test_calibrating_fits_one_half_and_judges_on_the_other(tmp_path: Path) -> None:
    given = ("--against", PUBLISHED, "--op", "attention", "--calibration", "none", "--calibrate")
    code, out, _ = command(*given, "--out", tmp_path, "--format", "json")
    assert code == 0
    (one,) = json.loads(out)
    fit = one["calibrated"]
    assert fit["not_fitted"] is None
    assert fit["fitted"] + fit["held_out"] == 100
    assert fit["after"]["n"] == fit["held_out"]
    assert fit["after"]["mape"] < fit["before"]["mape"]
    overlay = Path(fit["overlay"])
    assert overlay == tmp_path / "calibration" / "a100-sxm-80gb" / "attention.yaml"
    question = ("attention", "a100-sxm-80gb", {"phase": "decode", "batch": 4, "heads": 32, "kv_heads": 8})
    values = {**question[2], "head_dim": 128, "kv_tokens": 4096}
    answers = [windtunnel.predict(question[0], question[1], values, calibration=c) for c in ("none", str(overlay))]
    assert answers[0].duration_s != answers[1].duration_s
    code, out, _ = command(*given)
    assert code == 0
    assert re.search(r"MAPE before +after", out)
    assert "held out with all their batch" in out


def test_a_slip_of_many_rows_writes_nothing(truth: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("--against", truth, "--op", "vector_add", "--device", "a10", "--out", out)[0] == 2
    assert not out.exists()


def test_names_of_other_peoples_devices_are_matched_by_all_their_words() -> None:
    known = windtunnel.catalogue()
    for name, sku in (
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),
        ("AMD Instinct MI100", "mi100"),
        ("rtx-4090@vulkan", "rtx-4090@vulkan"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        # As drivers name them, with words that the SKU has not.
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H200@cuda", "h200-sxm-141gb@cuda"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
    ):
        assert validating.model_of(name, known) == sku
    for name in ("NVIDIA A100", "A100-PCIE-40GB-2", "nvidia", "NVIDIA H100 SMX 80GB"):
        with pytest.raises(InputError, match="is not a device of the catalogue"):
            validating.model_of(name, known)
    with pytest.raises(InputError, match="did you mean 'h100-sxm-80gb'"):
        validating.model_of("NVIDIA H100 SMX 80GB", known)


def test_the_former_name_of_an_option_names_the_new_one(truth: Path) -> None:
    code, _, err = command("--against", truth, "--op", "vector_add", "--at-most", "5")
    assert code == 2 and "--at-most was renamed to --max-mape" in err


def test_the_recorded_command_is_what_was_typed(truth: Path, tmp_path: Path) -> None:
    words = ("--op", "vector_add", "--max-mape", "500", "--context", "cache=cold", "--out", str(tmp_path / "v"))
    code, _, err = command("--against", truth, *words)
    assert code == 0, err
    data = json.loads((tmp_path / "v" / "validation.json").read_text())
    assert data["environment"]["command"] == shlex.join(["windtunnel", "validate", "--against", str(truth), *words])


def figures(op: str, n: int, noise_points: int) -> OperationResult:
    """A result of measurements on cpu:0."""
    basis = ModelBasis("formula", "a formula", 0, "assumed")
    parts: dict[str, Any] = dict.fromkeys(
        ("by_bound", "by_dtype", "worst", "reference_points", "suspect", "unsupported"), []
    )
    errors = dict.fromkeys(("mape", "median_ape", "p90_ape", "bias", "coverage"), 0.1)
    return OperationResult(
        device="host", op=op, n=n, noise_points=noise_points, noise_floor=None, sources=["cpu:0"], model=basis,
        **errors, **parts,
    )  # fmt: skip


def test_a_budget_too_small_for_an_operation_is_said_of_each_and_is_exit_1_if_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(results: list[OperationResult], *options: str) -> tuple[int, str, str]:
        omitted = [
            OmittedPoints("cpu:0", "gemm", "too small", 10, False, over_budget=True),
            OmittedPoints("cpu:0", "gemm", "processors support no bfloat16", 4, False),
            OmittedPoints("cpu:0", "fft", "too small", 1, False, over_budget=True),
        ]
        monkeypatch.setattr(validating, "validate_here", lambda **_: (results, [], omitted))
        return command(*options)

    code, out, err = run([])
    assert code == 1
    assert "the budget was too small to measure gemm, fft on cpu:0; expected a larger --budget" in err
    assert "nothing was measured" in err
    code, out, err = run([], "--format", "json")
    assert (code, json.loads(out)) == (1, [])
    # One operation was measured: the others are named all the same.
    code, out, err = run([figures("gemm", 6, 2)])
    assert code == 0
    assert "measured once, which a larger --budget repeats: 4 of 6 points of gemm on cpu:0" in err
    assert "the budget was too small to measure fft on cpu:0; expected" in err
    assert "nothing was measured" not in err


def test_operations_and_devices_that_share_a_reason_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ops, sources = ("aes", "copy", "gemm"), ("cpu:0", "opencl:0", "vulkan:0")
    omitted = [OmittedPoints(source, op, "too small", 5, False, over_budget=True) for source in sources for op in ops]
    omitted += [OmittedPoints("fpga:0", op, f"the board has no '{op}'; it has fft", 7, False) for op in ops]
    omitted += [OmittedPoints("fpga:0", "fft", f"reason {i}", 1, False) for i in range(9)]
    monkeypatch.setattr(validating, "validate_here", lambda **_: ([], [], omitted))
    _, out, err = command()
    told = [line for line in err.splitlines() if "budget" in line]
    assert told == [
        "windtunnel: the budget was too small to measure aes, copy, gemm on cpu:0, opencl:0, vulkan:0; "
        "expected a larger --budget"
    ]
    lines = out.splitlines()[out.splitlines().index("not measured:") + 1 :]
    assert lines[:2] == [
        "  45 points on cpu:0, opencl:0, vulkan:0: too small",
        "  21 points on fpga:0: the board has no 'aes', 'copy', 'gemm'; it has fft",
    ]
    # Five reasons, and how many are left.
    assert len(lines) == 6
    assert lines[-1] == "  6 more reasons, which --out DIR writes to validation.json"


def test_a_budget_of_a_second_is_too_small_for_a_slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by a second with each reading, so that the budget ends with the first one on any machine."""
    monkeypatch.setattr(validating, "Budget", lambda seconds: Budget(seconds, clock=count(0.0, 1.0).__next__))
    code, out, err = command("--device", "cpu:0", "--op", "vector_add", "--budget", "1", "--format", "json")
    assert (code, json.loads(out)) == (1, [])
    assert "the budget was too small to measure vector_add on cpu:0; expected a larger --budget" in err


def test_a_calibration_that_fits_nothing_is_exit_1_with_the_reasons(truth: Path) -> None:
    code, out, err = command("--against", truth, "--op", "vector_add", "--calibrate")
    assert code == 1
    for device in ("l4", "t4"):
        assert f"vector_add on {device} was not fitted: " in err
    assert "too few for a fit" in err and "MAPE" in out


def test_a_subcommand_is_no_command_of_its_own() -> None:
    group = cli.commands["validate"]
    assert isinstance(group, click.Group)
    assert "serving" in group.commands
    assert "serving" not in cli.commands
