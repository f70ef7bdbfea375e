"""What NVIDIA's management library says of a device: energy, power, clocks, heat. It is read, and nothing is ever set.

NVML API Reference: the energy counter is in mJ since the driver was loaded (Volta and later). Power is in mW; what
``nvmlDeviceGetPowerUsage`` says is, from Ampere on (GA100 excepted), a mean over the last second, so the field of the
instant power is asked first, which drivers have from 530 on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

SHORTEST_S = 0.1
"""Of a window whose power is told: sensors are renewed every 20 to 100 ms, so a shorter one says nothing."""
_REASONS: Mapping[int, str] = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""By nvmlClocksEventReason (nvml.h), why clocks are below their highest."""


@dataclass(frozen=True)
class State:
    """A device at one moment; None where it does not tell."""

    power_w: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    held_back: Sequence[str] | None
    """Why its clocks are below their highest; empty where nothing holds them back."""


class Nvml:
    """One device as NVML sees it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml, self._handle = library, handle

    @property
    def name(self) -> str:
        """What NVML calls the device."""
        return str(self._nvml.nvmlDeviceGetName(self._handle))

    @property
    def driver(self) -> str:
        """The driver's version: ``550.54.15``."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def energy_j(self) -> float | None:
        """What the device's counter of energy says (J, since the driver was loaded)."""
        found = self._told(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if found is None else found * 1e-3

    def power_w(self) -> float | None:
        """Power now (W)."""
        field = self._told(lambda handle: self._nvml.nvmlDeviceGetFieldValues(handle, [self._instant])[0])
        if field is not None and field.nvmlReturn == self._nvml.NVML_SUCCESS:
            return float(field.value.uiVal) * 1e-3
        found = self._told(self._nvml.nvmlDeviceGetPowerUsage)
        return None if found is None else found * 1e-3

    def power_limit_w(self) -> float | None:
        """The power at which it is held back (W): the lowest of all limits set on it."""
        found = self._told(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if found is None else found * 1e-3

    def state(self) -> State:
        """The device now."""
        nvml = self._nvml
        sm_mhz = self._told(lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        memory_mhz = self._told(lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        heat = self._told(lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        held = self._told(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return State(
            power_w=self.power_w(),
            sm_clock_hz=None if sm_mhz is None else sm_mhz * 1e6,
            memory_clock_hz=None if memory_mhz is None else memory_mhz * 1e6,
            temperature_c=None if heat is None else float(heat),
            held_back=None if held is None else reasons(int(held)),
        )

    @property
    def _instant(self) -> Any:
        return self._nvml.NVML_FI_DEV_POWER_INSTANT

    def _told(self, ask: Callable[[Any], Any]) -> Any:
        """The answer; None where this device, or its driver, has none."""
        nvml = self._nvml
        try:
            return ask(self._handle)
        except nvml.NVMLError as error:
            none = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            if error.value in none:
                return None
            raise


def reasons(bits: int) -> Sequence[str]:
    """Why clocks are held back, in words; a bit that is not known here stands for itself."""
    known = [words for bit, words in _REASONS.items() if bits & bit]
    rest = bits & ~sum(_REASONS)
    return tuple(known + ([f"{rest:#x}"] if rest else []))


def nvml_of(bus_id: str) -> Nvml | None:
    """The device at a PCI address (``0000:1B:00.0``); None where NVML, or its package, or the device in it, is not."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()  # counted: each call after the first does nothing else
        return Nvml(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus_id))
    except pynvml.NVMLError:
        return None


class Sampler:
    """A device's power while a block of a program runs, looked at every ``interval_s``.

    >>> with Sampler(nvml_of(bus_id)) as watched:
    ...     work()
    >>> watched.mean_power_w, watched.count

    What is measured takes part: a look costs the host some 10 to 100 us, in a thread of its own.
    """

    def __init__(self, device: Nvml, interval_s: float = 0.02, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.interval_s = device, interval_s
        self.times_s: list[float] = []
        """When each look was taken, by the host's clock."""
        self.powers_w: list[float] = []
        self.window_s = 0.0
        """From begin to end, once it has ended."""
        self.failure: Exception | None = None
        """What a look failed with; there were none after it."""
        self._clock = clock
        self._energy_j: tuple[float | None, float | None] = (None, None)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """Looks that told a power."""
        return len(self.powers_w)

    @property
    def mean_power_w(self) -> float | None:
        """The mean over the window by the trapezoidal rule (W).

        None where the window was shorter than `SHORTEST_S`, or where fewer than 3 looks told anything.
        """
        if self.window_s < SHORTEST_S or self.count < 3:
            return None
        return float(np.trapezoid(self.powers_w, self.times_s) / (self.times_s[-1] - self.times_s[0]))

    @property
    def energy_j(self) -> float | None:
        """Energy of the window by the device's own counter (J); None where it has none, or the window was too short."""
        begin, end = self._energy_j
        if begin is None or end is None or self.window_s < SHORTEST_S:
            return None
        return end - begin

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, name="power", daemon=True)
        self._began = self._clock()
        self._energy_j = (self.device.energy_j(), None)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        assert self._thread is not None  # noqa: S101  it was entered
        self._thread.join()
        self._energy_j = (self._energy_j[0], self.device.energy_j())
        self.window_s = self._clock() - self._began

    def _watch(self) -> None:
        while True:
            try:
                power = self.device.power_w()
            except Exception as error:  # a thread's errors reach nobody else
                self.failure = error
                return
            if power is not None:
                self.times_s.append(self._clock())
                self.powers_w.append(power)
            if self._end.wait(self.interval_s):
                return
