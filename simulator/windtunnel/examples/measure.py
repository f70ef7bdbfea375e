"""Shared functions of the examples: devices of one program, usage, findings and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import windtunnel
from windtunnel.core.errors import WindtunnelError
from windtunnel.runtime.accelerator import Accelerator

Opener = Callable[[str], Accelerator]
"""Opens a device by name. All devices of one opener share the clock of one host program."""


class ResultsDiffer(WindtunnelError, AssertionError):
    """Two forms of a program have different results."""


def devices() -> Opener:
    """Return an opener of emulated devices that share one virtual clock."""
    host, catalogue = windtunnel.Host(), windtunnel.catalogue()
    return lambda name: windtunnel.device(name, host=host, catalogue=catalogue)


@dataclass(frozen=True)
class Usage:
    """The usage of a part of a program: host time (s), and energy of one device (J) with its idle power."""

    seconds: float
    joules: float

    def per(self, count: int) -> Usage:
        """Return the usage of one of ``count`` equal parts."""
        return Usage(self.seconds / count, self.joules / count)


def usage_of(accelerator: Accelerator, program: Callable[[], object]) -> Usage:
    """Return the usage of ``program`` on an idle device; the program must wait for its own work."""
    accelerator.synchronize()
    seconds, joules = accelerator.clock_s, accelerator.energy_j
    program()
    return Usage(accelerator.clock_s - seconds, accelerator.energy_j - joules)


def saving(plain: float, improved: float) -> float:
    """Return the fraction of ``plain`` that ``improved`` saves; negative if it takes longer."""
    return 1.0 - improved / plain


def same(plain: np.ndarray, improved: np.ndarray, form: str) -> None:
    """Raise ResultsDiffer if two forms have results that differ in any bit."""
    if not np.array_equal(plain, improved):
        raise ResultsDiffer(f"'{form}' gives other numbers than the plain form")


@dataclass(frozen=True)
class Finding:
    """The finding of an example about a claim: the value in a stated setting, and the range over a sweep.

    ``value`` in the claim's SI unit (a fraction for a percentage), None if nothing could be measured.
    ``setting``: a description of the setting. ``swept``: the parameter that ``low`` and ``high`` range over.
    ``claim_holds_for``: the part of the sweep in which the claim holds.
    """

    value: float | None
    setting: str
    low: float | None = None
    high: float | None = None
    swept: str = ""
    claim_holds_for: str = ""


def conclude(claim: str, finding: Finding, show: Callable[[float], str]) -> None:
    """Print a claim, the value in the stated setting, and where the claim holds."""
    result = "not measurable" if finding.value is None else show(finding.value)
    print(f"claim: {claim}\nresult: {result} ({finding.setting})\nthe claim holds: {finding.claim_holds_for}")


def seconds(value: float) -> str:
    """Return a time as text with three significant digits, in us, ms or s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} us"


def _three(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage, never as -0%."""
    return f"{round(fraction * 100) + 0:d}%"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a table as text; the first ``left`` columns are left-aligned, the others right-aligned."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def cell(text: str, column: int) -> str:
        return text.ljust(widths[column]) if column < left else text.rjust(widths[column])

    return "\n".join("  ".join(cell(text, i) for i, text in enumerate(line)) for line in lines)
