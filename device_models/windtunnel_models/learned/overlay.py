"""What an overlay holds: numbers fitted to one SKU, residuals learned on it, and how the fit did on unseen rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel.core.device import ModelAccuracy
from windtunnel.core.provenance import Sourced
from windtunnel_models.learned.law import Law


@dataclass(frozen=True)
class Fit:
    """How well one operation of a device is known: what its measurements were and what was left out of the fit.

    ``rows``: measurements that were fitted. ``held_out``: mean absolute percentage error (as a fraction) on rows that
    the fit in question did not see, by whole ``split``; ``inside``: share of those within the 90% interval, and
    ``half_width`` its median half-width over the value. ``split`` and ``note`` say how.
    """

    op: str
    rows: int
    held_out: float | None = None
    inside: float | None = None
    half_width: float | None = None
    split: str = ""
    note: str = ""

    def accuracy(self) -> ModelAccuracy:
        """The same, as a device says it."""
        text = f"fitted to {self.rows:,} measurements of this SKU" + (f"; {self.note}" if self.note else "")
        return ModelAccuracy(
            self.op, "measured", text, self.rows, self.held_out, self.inside, self.half_width, self.split
        )


@dataclass(frozen=True)
class LearnedEntry:
    """A residual as a file states it, before it is bound to a device.

    ``form``: ``points`` (rows with their log ratios, for a Gaussian process) or ``arrays`` (a compact file that the
    operation's own module reads). ``data``: what the form needs. ``source``: how many measurements, from where.
    ``laws``: what the log ratios of some choices (with strokes between them) are over in place of the formula.
    """

    form: str
    data: Mapping[str, Any]
    source: Sourced
    laws: Mapping[str, Law] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlay:
    """One calibration file: ``values`` lie over the SKU's own; ``learned`` residuals and ``fits`` are by operation.

    ``api``: what the device was reached through when it was measured, where the file says so.
    """

    sku: str
    values: Mapping[str, Sourced] = field(default_factory=dict)
    learned: Mapping[str, LearnedEntry] = field(default_factory=dict)
    fits: Mapping[str, Fit] = field(default_factory=dict)
    path: Path | None = None
    api: str | None = None
