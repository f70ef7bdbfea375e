"""What the examples share: devices of one program, what a piece of a program takes, findings, and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import windtunnel
from windtunnel.core.errors import WindtunnelError
from windtunnel.runtime.accelerator import Accelerator

Opener = Callable[[str], Accelerator]
"""Opens a device by name. Those that one of them opens share the clock of one host program."""


class ResultsDiffer(WindtunnelError, AssertionError):
    """Two forms of a program that should give the same numbers do not."""


def devices() -> Opener:
    """Emulated devices of one program: they share its virtual clock."""
    host, catalogue = windtunnel.Host(), windtunnel.catalogue()
    return lambda name: windtunnel.device(name, host=host, catalogue=catalogue)


@dataclass(frozen=True)
class Usage:
    """What a piece of a program took: seconds of the host's clock, joules of one device (its idle power included)."""

    seconds: float
    joules: float

    def per(self, count: int) -> Usage:
        """A share of it."""
        return Usage(self.seconds / count, self.joules / count)


def usage_of(accelerator: Accelerator, program: Callable[[], object]) -> Usage:
    """What ``program`` takes from an idle device on; it has to wait for its own work."""
    accelerator.synchronize()
    seconds, joules = accelerator.clock_s, accelerator.energy_j
    program()
    return Usage(accelerator.clock_s - seconds, accelerator.energy_j - joules)


def saving(plain: float, improved: float) -> float:
    """The fraction of ``plain`` that ``improved`` saves: negative where it takes longer."""
    return 1.0 - improved / plain


def same(plain: np.ndarray, improved: np.ndarray, form: str) -> None:
    """ResultsDiffer where two forms do not give the same numbers, to the last bit."""
    if not np.array_equal(plain, improved):
        raise ResultsDiffer(f"'{form}' does not give the numbers of the plain form")


@dataclass(frozen=True)
class Finding:
    """What an example has to say of a claim: its value in a setting stated beforehand, and its range over a sweep.

    ``value`` in the claim's SI unit (a fraction for a percentage), None where there was nothing to measure.
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
    """Print a claim, what was found in the setting stated beforehand, and where the claim holds."""
    found = "nothing to measure" if finding.value is None else show(finding.value)
    print(f"claim: {claim}\nhere: {found} ({finding.setting})\nholds: {finding.claim_holds_for}")


def seconds(value: float) -> str:
    """A time for a table: three significant digits, in us, ms or s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} us"


def _three(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def percent(fraction: float) -> str:
    """A fraction for a table; no -0%."""
    return f"{round(fraction * 100) + 0:d}%"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns under their names: the first ``left`` of them to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def cell(text: str, column: int) -> str:
        return text.ljust(widths[column]) if column < left else text.rjust(widths[column])

    return "\n".join("  ".join(cell(text, i) for i, text in enumerate(line)) for line in lines)
