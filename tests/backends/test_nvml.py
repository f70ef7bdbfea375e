"""NVML through a stand-in for its package: what is read, what is not there, and what windows are too short to tell."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windtunnel.backends.common import nvml
from windtunnel.backends.common.nvml import Nvml, nvml_named, nvml_of, nvml_with_uuid, throttle_reasons
from windtunnel.core.results.validation import Conditions


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


class FakeNvml:
    """The package ``pynvml``: what it has it says, and nothing can be set. ``lacks``: functions, each with its error."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_FUNCTION_NOT_FOUND = 3, 4, 13
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2, 0
    NVML_FI_DEV_POWER_INSTANT = 186

    def __init__(self, **lacks: int) -> None:
        self.lacks = lacks
        self.energy_mj = itertools.count(1_000_000, 70_000)
        self.instant: int | None = 650_500

    def __getattribute__(self, name: str) -> Any:
        lacks = object.__getattribute__(self, "__dict__").get("lacks", {})
        if name in lacks:

            def failing(*_: Any) -> None:
                raise NVMLError(lacks[name])

            return failing
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.54.15"

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> str:
        if pciBusId != "0000:1B:00.0":
            raise NVMLError(6)
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f":
            raise NVMLError(6)
        return "handle"

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("handle", "twin", "twin")[index]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return {"handle": "NVIDIA stand-in", "twin": "NVIDIA twin"}[handle]

    def nvmlDeviceGetApplicationsClock(self, handle: str, which: int) -> int:
        return {0: 1755}[which]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return next(self.energy_mj)

    def nvmlDeviceGetFieldValues(self, handle: str, fieldIds: list[int]) -> list[Any]:
        assert fieldIds == [186]
        none = self.instant is None
        return [SimpleNamespace(nvmlReturn=3 if none else 0, value=SimpleNamespace(uiVal=self.instant or 0))]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 600_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        assert sensor == 0
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x4 | 0x20


def device(**lacks: int) -> Nvml:
    return Nvml(FakeNvml(**lacks), "handle")


def test_everything_is_in_si_units() -> None:
    found = device()
    assert (found.name, found.driver) == ("NVIDIA stand-in", "550.54.15")
    assert found.energy_j() == 1000.0 and found.power_limit_w() == 700.0
    state = found.state()
    assert (state.power_w, state.sm_clock_hz, state.memory_clock_hz) == (650.5, 1.98e9, 3.201e9)
    assert state.application_clock_hz == 1.755e9
    assert state.temperature_c == 41.0 and state.held_back == ("power cap", "thermal (software)")


def test_what_a_device_has_not_is_none_and_other_errors_are_raised() -> None:
    lacks = dict.fromkeys(
        (
            "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetApplicationsClock",
        ),
        3,
    )  # fmt: skip
    bare = device(**lacks)
    assert bare.energy_j() is None and bare.power_limit_w() is None
    assert bare.state() == Conditions()
    with pytest.raises(NVMLError):
        device(nvmlDeviceGetTotalEnergyConsumption=15).energy_j()  # GPU is lost


def test_power_of_the_moment_comes_before_the_mean_of_a_second() -> None:
    found = device()
    assert found.power_w() == 650.5
    found._nvml.instant = None
    assert found.power_w() == 600.0


def test_reasons_that_are_not_known_stand_for_themselves() -> None:
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0x1) == ("idle",)
    assert throttle_reasons(0x4 | 0x1000) == ("power cap", "0x1000")


def test_without_the_package_the_library_or_the_device_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    here = nvml_of("0000:1B:00.0")
    assert here is not None and here.name == "NVIDIA stand-in"
    assert nvml_of("0000:99:00.0") is None
    assert nvml_with_uuid(bytes(range(16))) is not None and nvml_with_uuid(bytes(16)) is None
    assert nvml_named("NVIDIA stand-in") is not None
    assert nvml_named("NVIDIA twin") is None and nvml_named("another") is None  # two have it, and none has it
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(nvmlInit=12))  # the library is not found
    assert nvml_of("0000:1B:00.0") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_of("0000:1B:00.0") is None


def test_nothing_is_ever_set() -> None:
    assert "nvmlDeviceSet" not in Path(nvml.__file__).read_text()
