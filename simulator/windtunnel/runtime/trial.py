"""Operations on real devices: made ready, done, timed, and their numbers checked.

A back end that reaches a device says which operations of the registry (`windtunnel ops`) it does, and makes a `Trial`
of each: operands allocated, kernels compiled, warmed up by nobody yet. Who measures, and a fleet that has real devices,
see these two protocols alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from windtunnel.runtime.interface import DeviceInfo

Timer = Literal["device", "host"]
Conditions = Mapping[str, float | Sequence[str]]
"""A device at one moment, what it tells of: ``sm_clock_hz``, ``memory_clock_hz``, ``power_w``, ``power_limit_w``,
``temperature_c``, and ``held_back``, the reasons why its clocks are below their highest."""


class Trial(Protocol):
    """One operation, ready on a device. All calls raise ``DeviceError`` where the device fails."""

    timer: Timer
    """Whose clock tells the time: the device's own (events, time stamps), or the host's around a finished call."""
    note: str
    """What was done, in a few words: the library's name and version, or which kernel."""

    def run(self, count: int = 1) -> float:
        """Do it ``count`` times, one after another, and wait; seconds of one, in the mean.

        In the context of its columns: with ``cache: cold`` each takes other operands, of more bytes in all than the
        caches hold; with ``dispatch: device`` the device's part of the time alone, where ``timer`` can tell it.
        """

    def check(self) -> float:
        """How far the numbers of the last run are off, as a share of what is allowed: at most 1 is right.

        Against a reference of its own making (NumPy, another library), which this computes when it is asked.
        """

    def close(self) -> None:
        """Give back what it holds. Closing again does nothing."""


class Operations(Protocol):
    """A device that does operations."""

    @property
    def info(self) -> DeviceInfo:
        """What is known of the device."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Driver and libraries, by name: what a committed measurement has beside it."""

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """In words, why this device does not do it; None where it does.

        ``columns`` are all of the operation's, parsed (``core.ops.Column.parse``): counts are floats, choices are text.
        """

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """Make it ready. UnsupportedOperationError for a refusal, DeviceOutOfMemory where it does not fit."""

    def energy_j(self) -> float | None:
        """Energy by the device's own counter (J, from any origin); None where it has none."""

    def close(self) -> None:
        """Give back the device. Closing again does nothing; a trial of before is then an error."""


@runtime_checkable
class Conditioned(Protocol):
    """Operations of a device that tells its clocks and its heat, as not every one does."""

    def conditions(self) -> Conditions:
        """As they are now; empty where the device, or its driver, does not say. Nothing is ever set."""
