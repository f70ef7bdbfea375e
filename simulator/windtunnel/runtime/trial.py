"""Operations on real devices: prepared, executed, timed, and their results checked.

A back end lists the operations (`windtunnel ops`) that a device supports, and prepares a `Trial` of each: operands are
allocated and kernels compiled, without a warm-up. Measurements and fleets with real devices use these two protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

from windtunnel.core.columns import Columns
from windtunnel.core.results.validation import Conditions
from windtunnel.runtime.interface import DeviceInfo

Timer = Literal["device", "host"]


class Trial(Protocol):
    """A prepared operation on a device. All calls raise ``DeviceError`` if the device fails."""

    timer: Timer
    """The clock: the device's own (events, time stamps), or the host's, until the call has completed."""
    note: str
    """The implementation in a few words: the library's name and version, or the kernel."""

    def run(self, count: int = 1) -> float:
        """Execute it ``count`` times, one after another, and wait; return the mean time of one (s).

        The columns give the context. With ``cache: cold`` each execution has other operands, larger in total than the
        caches. With ``dispatch: device`` only the device's time counts, if ``timer`` is the device's clock.
        """

    def check(self) -> float:
        """Return the error of the last results over the tolerance: at most 1 is correct.

        The reference (NumPy, another library) is computed by this call.
        """

    def close(self) -> None:
        """Free its resources. Closing again has no effect."""


class Operations(Protocol):
    """A device that executes operations."""

    @property
    def info(self) -> DeviceInfo:
        """The description of the device."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of driver and libraries, which are recorded with measurements."""

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why this device does not support an operation; None if it does."""

    def trial(self, op: str, columns: Columns) -> Trial:
        """Prepare an operation. Raises UnsupportedOperationError, or DeviceOutOfMemory if it does not fit."""

    def energy_j(self) -> float | None:
        """Return the device's energy counter (J, from an arbitrary origin); None if it has none."""

    def close(self) -> None:
        """Close the device. Closing again has no effect; its trials can no longer be used."""


@runtime_checkable
class Conditioned(Protocol):
    """Operations of a device that reports its clocks and temperature."""

    def conditions(self) -> Conditions:
        """Return the current state; empty if the device or its driver does not report it. Nothing is changed."""
