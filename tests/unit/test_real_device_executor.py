"""The executor of a real device: what is charged, what is a failure, and what stays ready."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import info

from windtunnel.backends.discovery import executor as real_executor
from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.data import result_json
from windtunnel.runtime.codes import code_of

pytestmark = pytest.mark.usefixtures("stated_host")


class Device:
    """Operations that do what they are told."""

    versions: Mapping[str, str] = {"fake": "1"}

    def __init__(self, share: float = 0.1, fails: type[errors.DeviceError] | None = None, room: int = 1000) -> None:
        self.info, self.share, self.fails, self.room = info(), share, fails, room
        self.open: list[str] = []
        self.closed = 0

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Any:
        if len(self.open) >= self.room:
            kind = errors.DeviceOutOfMemory
            raise kind("no room", operation="trial", device="fake", code=code_of("native", kind))
        self.open.append(op)
        return Trial(self)

    def energy_j(self) -> float | None:
        return None

    def close(self) -> None:
        self.closed += 1


class Trial:
    timer, note = "host", "a fake"

    def __init__(self, device: Device) -> None:
        self.device, self.runs, self.checks = device, 0, 0

    def run(self, count: int = 1) -> float:
        self.runs += 1
        kind = self.device.fails
        if kind is not None and self.runs > 1:
            raise kind("it failed", operation="run", device="fake", code=code_of("native", kind))
        return 0.5 if self.runs == 1 else 1e-3  # the first run compiles

    def check(self) -> float:
        self.checks += 1
        return self.device.share

    def close(self) -> None:
        self.device.open.remove(self.device.open[0])


COLUMNS = {"n": 10.0, "dtype": "float32", "dispatch": "device", "clock": "burst", "cache": "cold"}


def test_a_run_that_takes_longer_than_its_model_says_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, clock = real_executor.RealExecutor("cpu:0", Device), itertools.count(0.0, 301.0)
    monkeypatch.setattr(real_executor.time, "perf_counter", lambda: next(clock))
    for _ in range(2):  # each takes 301 s by that clock
        assert not executor.execute("vector_add", COLUMNS).problem
    next(clock)  # what else the simulation does is not the device's
    with pytest.raises(errors.InputError, match="taken 602 s of real time on cpu:0; expected work for at most 600 s"):
        executor.execute("vector_add", COLUMNS)
    executor.reset()
    assert not executor.execute("vector_add", COLUMNS).problem


@pytest.mark.parametrize("share", [math.inf, math.nan, 1.01])
def test_numbers_that_are_not_finite_are_wrong_and_leave_a_result_that_can_be_written(share: float) -> None:
    executor = real_executor.RealExecutor("cpu:0", lambda: Device(share))
    done = executor.execute("vector_add", OPERATIONS.find("vector_add").complete({"n": 10}))
    assert "computed 'vector_add' wrongly" in done.problem
    result_json(executor.report())


def test_what_is_kept_ready_gives_way_to_what_is_to_be_done() -> None:
    device = Device(room=2)
    executor = real_executor.RealExecutor("cpu:0", lambda: device)
    for n in (1, 2, 3, 4):
        assert not executor.execute("vector_add", OPERATIONS.find("vector_add").complete({"n": n})).problem
    assert len(device.open) == 2


def test_what_a_first_run_compiles_is_not_charged_and_numbers_are_checked_once_an_operation() -> None:
    device = Device()
    found = real_executor.RealExecutor("cpu:0", lambda: device)
    assert [found.execute("vector_add", COLUMNS).duration_s for _ in range(3)] == [1e-3] * 3
    report = found.report()
    assert (report.operations, report.checked, report.worst_error_share) == (3, 1, 0.1)
    assert report.measured_s == pytest.approx(3e-3)


def test_few_operations_stay_ready_so_that_many_do_not_fill_the_memory() -> None:
    device = Device()
    found = real_executor.RealExecutor("cpu:0", lambda: device)
    for n in range(50):
        found.execute("vector_add", COLUMNS | {"n": float(n)})
        assert len(device.open) <= 8


def test_wrong_numbers_are_a_failure_and_not_a_time() -> None:
    found = real_executor.RealExecutor("cpu:0", lambda: Device(share=3.0))
    for _ in range(3):  # a job that is tried again does not make it right
        executed = found.execute("vector_add", COLUMNS)
        assert "wrongly: the error is 3 times" in executed.problem and not executed.gone
    assert len(found.report().failures) == 3 and found.report().operations == 0


def test_a_device_that_hangs_is_opened_anew_and_comes_back_or_is_gone() -> None:
    devices = [Device(fails=errors.DeviceHang), Device()]
    found = real_executor.RealExecutor("cpu:0", lambda: devices.pop(0))
    executed = found.execute("vector_add", COLUMNS)
    assert executed.gone and executed.back_s is not None and "it failed" in executed.problem
    assert not found.execute("vector_add", COLUMNS).problem

    def once(count: list[int] = [0]) -> Device:  # noqa: B006
        count[0] += 1
        if count[0] > 1:
            raise errors.DeviceNotPresentError("unplugged")
        return Device(fails=errors.DeviceLost)

    found = real_executor.RealExecutor("cpu:0", once)
    executed = found.execute("vector_add", COLUMNS)
    assert executed.gone and executed.back_s is None
    assert "unplugged" in found.report().failures[1]
    assert found.execute("vector_add", COLUMNS).gone
