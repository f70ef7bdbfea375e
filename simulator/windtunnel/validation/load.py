"""A device under load: put to work before it is measured, and its power while it executes one operation.

An idle GPU lowers its clock, and short operations with pauses do not raise it. Measured on an H200 through Vulkan: the
SM clock was 345 to 630 MHz. An addition of 10 million elements took 113 us at first and 43.4 us after 0.4 s of
continuous work, also after another second without work. With a CUDA context the clock was always 1980 MHz.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from windtunnel.core.errors import DeviceError, DeviceHang, DeviceLost, UnsupportedOperationError
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.trial import Conditioned, Operations, Trial

WORK_S = 0.5
"""For how long (s) a device is put to work."""
WARM_S = 1.0
"""For how long (s) afterwards a device that does not report its clock is assumed to keep it."""
FULL_CLOCK, SLOW_CLOCK = 0.97, 0.9
"""The shares of the highest clock below which a device is put to work again, and a measurement is suspect."""
_CHUNK_S, _MOST_COUNT = 0.05, 100_000
"""The approximate duration (s) of one call, so that the time of the call itself is negligible, and its most executions.
"""
_ELEMENTS, _MEMORY_SHARE = 20e6, 0.05
"""The elements of the addition that is the work (87 us on an H200, 240 MB), and the most memory that it may take."""
POWER_S = 1.0
"""The duration (s) of a measurement of power: energy counters are updated every tenth of a second."""
_JUDGED_S = 0.2
"""After this time (s) the measurement ends if the device is not busy enough."""
BUSY = 0.8
"""The share of that time for which a device must execute the operation, or the power is not the operation's."""


def full_count(trial: Trial, clock: Callable[[], float], count: int = 1) -> int:
    """Return for how many executions one call takes about `_CHUNK_S`, found by longer and longer calls.

    The first call with a count may prepare it (capture a graph), so that the second one is timed.
    """
    while True:
        trial.run(count)
        began = clock()
        device_s = count * trial.run(count)
        took_s = max(clock() - began, device_s)
        if took_s >= 0.5 * _CHUNK_S or count >= _MOST_COUNT:
            return count
        count = min(8 * count, math.ceil(count * _CHUNK_S / max(took_s, 1e-9)), _MOST_COUNT)


@dataclass
class Load:
    """The work of one device: an addition by its own kernels, for which memory is allocated once.

    ``why_not`` is the reason if the device cannot be put to work.
    """

    operations: Operations
    clock: Callable[[], float]
    why_not: str = ""
    _trial: Trial | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)
    _worked: float = field(default=-math.inf, init=False)

    def prepare(self) -> None:
        """Allocate the operands. Does nothing unless the device is a GPU. Raises DeviceHang and DeviceLost."""
        info = self.operations.info
        if self._trial is not None or self.why_not or info.software or info.kind != "gpu":
            return
        elements = min(_ELEMENTS, _MEMORY_SHARE * info.memory_bytes / 12)
        op = OPERATIONS.find("vector_add")
        columns = op.complete({"n": max(float(int(elements)), 1.0), "cache": "warm", "dispatch": "eager"})
        try:
            refused = self.operations.refusal(op.name, columns)
            if refused is not None:
                self.why_not = refused
                return
            self._trial = self.operations.trial(op.name, columns)
            self._trial.run(1)
            self._count = full_count(self._trial, self.clock)
        except (DeviceHang, DeviceLost) as error:
            self.why_not = str(error)
            raise
        except (DeviceError, UnsupportedOperationError) as error:
            self.why_not, self._trial = str(error), None

    def work(self, fastest_hz: float) -> None:
        """Execute the addition for `WORK_S`, unless the device has its highest clock, or worked just now."""
        if self._trial is None or self._at_full_clock(fastest_hz):
            return
        until = self.clock() + WORK_S
        while self.clock() < until:
            self._trial.run(self._count)
        self._worked = self.clock()

    def _at_full_clock(self, fastest_hz: float) -> bool:
        if self._worked == -math.inf:
            return False
        clock_hz = None
        if isinstance(self.operations, Conditioned):
            with suppress(DeviceError, RuntimeError):  # a failed reading is as none
                clock_hz = self.operations.conditions().sm_clock_hz
        if clock_hz is None:
            return self.clock() - self._worked < WARM_S
        return clock_hz >= FULL_CLOCK * fastest_hz


def power_w(trial: Trial, operations: Operations, clock: Callable[[], float]) -> tuple[float | None, str]:
    """Return the average power (W) over `POWER_S` of the operation, or None with the reason.

    Args:
        trial: The operation.
        operations: The device, which must have an energy counter.
        clock: The clock (s).
    """
    count = full_count(trial, clock)
    before, began, busy_s, spent_s = operations.energy_j(), clock(), 0.0, 0.0
    while spent_s < POWER_S:
        busy_s += count * trial.run(count)
        spent_s = clock() - began
        if spent_s > _JUDGED_S and busy_s < BUSY * spent_s:
            return None, f"power not measured: the device was busy with it for {busy_s / spent_s:.0%} of the time"
    after = operations.energy_j()
    return (None, "") if before is None or after is None else ((after - before) / (clock() - began), "")
