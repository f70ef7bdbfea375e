"""Which devices `validate` measures, with which model, for how long; and the whole of it on this host."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from windtunnel.app import validate as validating
from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.discovery.real_devices import RealDevice
from windtunnel.cli.main import cli
from windtunnel.core import errors
from windtunnel.core.results.validation import Conditions, ConditionsSeen
from windtunnel.report.validation_page import render
from windtunnel.validation import campaign as measuring
from windtunnel.validation import suite
from windtunnel.validation.budget import Budget
from windtunnel.validation.measure import Measured
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


def found(name: str, label: str, kind: str, api: str, *, software: bool) -> DetectedDevice:
    way, _, number = name.partition(":")
    return DetectedDevice(way, int(number), label, kind, software, "driver 1", api)


HOST = RealDevice(found("cpu:0", "a processor", "cpu", "native", software=True), "host", "host@native")
CIPHERS = RealDevice(found("offload:0", "a processor", "cpu", "native", software=True), "host", "host@native")
POCL = RealDevice(found("opencl:1", "a processor", "cpu", "opencl", software=True), "host", "host@opencl")
CUDA = RealDevice(found("cuda:0", "NVIDIA L4", "gpu", "cuda", software=False), "l4", "l4@cuda")
BOARD = RealDevice(found("opencl:0", "NVIDIA L4", "gpu", "opencl", software=False), "l4", "l4@opencl")
RTL = RealDevice(found("fpga:0", "Icarus", "fpga", "xrt", software=True), None, None)
ALL = (CUDA, BOARD, HOST, CIPHERS, POCL, RTL)


@pytest.fixture
def _a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with all of them."""
    monkeypatch.setattr(measuring, "probe", lambda: ())
    monkeypatch.setattr(measuring, "identify", lambda _: list(ALL))


@pytest.mark.usefixtures("_a_host")
@pytest.mark.parametrize(
    ("device", "model", "chosen"),
    [
        (None, None, [("cuda:0", "l4@cuda"), ("opencl:0", "l4@opencl"), ("cpu:0", "host@native"), ("offload:0", "host@native"), ("opencl:1", "host@opencl")]),
        ("opencl:0", None, [("opencl:0", "l4@opencl")]),
        ("l4@opencl", None, [("opencl:0", "l4@opencl")]),
        ("l4@cuda", None, [("cuda:0", "l4@cuda")]),
        ("l4", None, [("cuda:0", "l4@cuda"), ("opencl:0", "l4@opencl")]),
        ("host@native", None, [("cpu:0", "host@native"), ("offload:0", "host@native")]),
        ("cuda:0", "rtx-4090", [("cuda:0", "rtx-4090")]),
        ("fpga:0", "alveo-u50", [("fpga:0", "alveo-u50")]),
    ],
)  # fmt: skip
def test_a_device_is_measured_by_its_own_name_or_its_model_s(
    device: str | None, model: str | None, chosen: Any
) -> None:
    assert measuring.choose(device, model, KNOWN) == chosen


@pytest.mark.usefixtures("_a_host")
@pytest.mark.parametrize(
    ("device", "model", "kind", "says"),
    [
        (
            "opencl:7",
            None,
            errors.DeviceNotPresentError,
            r"device 'opencl:7' not found on this host; available: cuda:0.*did you mean opencl",
        ),
        ("t4", None, errors.DeviceNotPresentError, "device 't4' not found on this host"),
        ("t5", None, errors.InputError, "did you mean 't4'"),
        ("opencel:0", None, errors.InputError, "did you mean 'opencl'"),
        ("fpga:0", None, errors.InputError, "no model is known for fpga:0"),
        ("cuda:0", "rtx-4909", errors.InputError, "did you mean 'rtx-4090'"),
        (None, "l4", errors.InputError, "--as needs the device"),
    ],
)
def test_what_is_not_here_or_has_no_model_is_said(
    device: str | None, model: str | None, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        measuring.choose(device, model, KNOWN)


@pytest.mark.parametrize("budget_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_budget_that_is_none_is_refused(budget_s: float) -> None:
    with pytest.raises(errors.InputError, match=r"--budget.*1 to 86,400 seconds"):
        measuring.measured(budget=Budget(budget_s))


@pytest.mark.usefixtures("_a_host")
def test_the_budget_is_shared_and_everything_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: dict[str, float] = {}

    def take(name: str, sku: str, op: None, budget: Budget, *_: Any) -> measuring.MeasuredDevice:
        shares[name] = budget.seconds
        return measuring.MeasuredDevice(name, sku, Measured((), (), (), 0, 0.0), HOST, {})

    monkeypatch.setattr(measuring, "_measure", take)
    found = measuring.measured(budget=Budget(100.0))
    assert sum(shares.values()) == pytest.approx(100.0) and shares["offload:0"] < shares["cpu:0"] == shares["cuda:0"]
    assert [one.name for one in found.devices] == list(shares)


def test_clocks_are_among_the_circumstances_by_device_and_when() -> None:
    told = ConditionsSeen(
        begin=Conditions(sm_clock_hz=1.98e9, memory_clock_hz=3.2e9, temperature_c=41.0),
        end=Conditions(sm_clock_hz=1.2e9, memory_clock_hz=3.2e9, temperature_c=63.0),
        lowest=Conditions(sm_clock_hz=1.2e9, temperature_c=41.0, power_limit_w=700.0),
        highest=Conditions(sm_clock_hz=1.98e9, temperature_c=63.0, power_limit_w=700.0, held_back=["power cap"]),
    )
    info = SimpleNamespace(name="NVIDIA L4", driver="CUDA 12.9")
    taken = measuring.MeasuredDevice(
        "cuda:0", "l4@cuda", Measured((), (), (), 0, 0.0, told), info, {"cuBLAS": "12.9.1"}
    )
    about = measuring.MeasurementResults([taken]).environment()
    assert about.clocks == {
        "cuda:0 SM (begin)": 1.98e9, "cuda:0 memory (begin)": 3.2e9, "cuda:0 SM (end)": 1.2e9,
        "cuda:0 memory (end)": 3.2e9, "cuda:0 SM (lowest)": 1.2e9, "cuda:0 SM (highest)": 1.98e9,
    }  # fmt: skip
    assert about.conditions == {"cuda:0": told} and about.versions["cuda:0 cuBLAS"] == "12.9.1"
    page = render([], [], about)
    assert "cuda:0: SM 1.20 GHz to 1.98 GHz, power limit 700 W, 41 to 63 °C, clocks limited by power cap" in page


# The whole, on this host's processors.


def run(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(cli, ["validate", *words])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def _counted_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock takes 10 ms of the budget, and no call of a device is abandoned.

    So ``--budget`` limits how many samples are taken, and what is measured does not depend on the machine's speed.
    """

    def counted(seconds: float) -> Budget:
        readings = count()
        return Budget(seconds, lambda: next(readings) * 10e-3, least_patience_s=300.0)

    monkeypatch.setattr(validating, "Budget", counted)


@pytest.mark.usefixtures("_counted_budget")
def test_the_host_is_measured_compared_and_written_down(tmp_path: Path) -> None:
    done = run("--device", "cpu:0", "--budget", "4", "--format", "json", "--out", str(tmp_path))
    results = json.loads(done.stdout)
    assert {"device", "op", "n", "mape", "median_ape", "p90_ape", "bias", "noise_floor"} <= set(results[0])
    ops = {one["op"] for one in results}
    assert {"copy", "vector_add"} <= ops and {one["device"] for one in results} == {"host@native"}
    document = json.loads((tmp_path / "validation.json").read_text())
    assert document["results"] == results and "numpy" in " ".join(document["environment"]["versions"]).lower()
    rows: list[Mapping[str, Any]] = document["measurements"]
    assert rows and all(
        row["latency_s"] > 0 and row["source"] == "cpu:0" and row["error_over_tolerance"] <= 1.0 for row in rows
    )
    whys = {one["op"]: one["why"] for one in document["omitted"]}
    assert "does not support 'aes'; expected one of" in whys["aes"], "the device's own words"
    # What was measured is a file like any other: read back it gives the same figures, and calibrates.
    again = json.loads(run("--against", str(tmp_path / "validation.json"), "--format", "json").stdout)
    assert [(o["op"], o["mape"]) for o in again] == [(o["op"], o["mape"]) for o in results if o["op"] != "makespan"]
    assert "cpu:0" in (tmp_path / "validation.html").read_text()


def test_options_of_files_mean_nothing_for_a_measurement_and_the_reverse() -> None:
    for given in (("--context", "cache=warm"), ("--against", "x.csv", "--budget", "3")):
        done = CliRunner().invoke(cli, ["validate", *given])
        assert isinstance(done.exception, errors.InputError) and given[-2] in str(done.exception)


@pytest.mark.usefixtures("_counted_budget")
def test_one_operation_can_be_measured_alone() -> None:
    results = json.loads(run("--device", "cpu:0", "--op", "vector_add", "--budget", "2", "--format", "json").stdout)
    assert {result["op"] for result in results} - {"makespan"} == {"vector_add"}
    with pytest.raises(errors.InputError, match="did you mean 'vector_add'"):
        measuring.measured(op="vector_ad")


PROGRAMMED = {"copy", "elementwise", "fft", "gemm", "launch", "stencil", "vector_add"}


@pytest.mark.usefixtures("_counted_budget")
@pytest.mark.parametrize(
    ("device", "model", "ops"),
    [
        ("opencl:0", "host@opencl", PROGRAMMED),
        ("vulkan:0", "host@vulkan", PROGRAMMED),
        ("host@wgpu", "host@wgpu", PROGRAMMED),
        ("offload:0", "host@native", {"aes", "compress", "copy", "decompress", "launch", "sign"}),
    ],
)
def test_software_devices_are_measured_as_what_they_are(
    device: str, model: str, ops: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One point of each operation is measured, and is compared with the model that the device is said to be."""
    # Many small requests, to fill the cache with operands, take seconds to prepare.
    ready = [each for each in suite.points() if each.columns.get("bytes", math.inf) >= 64 << 10]
    first = {each.op: each for each in reversed(ready)}
    monkeypatch.setattr(suite, "points", lambda: iter(first.values()))
    results = json.loads(run("--device", device, "--budget", "4", "--format", "json").stdout)
    assert {result["device"] for result in results} == {model}
    # On a busy host a measurement may be too unsteady to count, and then the makespan may lack operations.
    assert {result["op"] for result in results} - {"makespan"} == ops
    assert all(result["n"] in (0, 1) and (result["mape"] is None) == (result["n"] == 0) for result in results)
