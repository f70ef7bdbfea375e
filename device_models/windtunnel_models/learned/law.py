"""A sum of launch, bytes and operations: the base that a residual takes where a kind's formula is of another shape.

t = launch_s + bytes / bytes_per_s + flops / flops_per_s, with numbers of zero or more: what a time looks like whose
parts do not overlap (for a transfer: R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko
CS-2", Parallel Computing 20 (1994); here with one more term). It grows with every size, also beyond the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.ops import Attention, Fft, FloatArray, Gemm, Rows
from windtunnel_models.learned.process import Z90, Scales

LAWFUL = frozenset({"attention", "copy", "elementwise", "fft", "gemm", "kernel", "stencil", "vector_add"})
"""Operations whose counts all go into bytes and operations, so that such a sum says how each of them acts."""

UNITS = {"launch_s": "s", "bytes_per_s": "B/s", "flops_per_s": "FLOP/s"}
"""A law's numbers as files have them, with their units; a term that is not there takes no time."""

_DIGITS = 6
_ROUNDS = 4
_SURPRISE = 1.5
"""Robust standard deviations beyond which a row counts for less (Huber's weights), as for residuals."""

_LEAST_S = 1e-15
"""What an operation without any work takes where a launch takes no time (s), so that logarithms stay finite."""

_LEAST_WORK = 0.5
"""Share of some row's time that bytes and operations must take: rows of launches alone do not say how work grows."""

_LEAST_TOLD = 0.1
"""Standard deviation of a term, over the time of the row where it counts most, beyond which rows do not tell it."""


def terms(rows: Rows) -> FloatArray:
    """What each number of a law is multiplied by (n x 3): one, bytes, operations (none where they go as bytes do)."""
    n = rows.numbers
    moved = n["bytes"] if "bytes" in n else rows.footprint_bytes()
    if rows.op is Attention:
        done = Attention.flops(rows.choices, n)
    elif rows.op is Gemm or rows.op is Fft:
        done = Gemm.flops(n) if rows.op is Gemm else Fft.flops(n)
    else:
        done = n.get("flops", np.zeros(()))
    parts = [np.ones(rows.shape), np.broadcast_to(moved, rows.shape), np.broadcast_to(done, rows.shape)]
    return np.stack(parts, -1).astype(np.float64)


@dataclass(frozen=True)
class Law:
    """The seconds of a launch, of a byte and of an operation, and their covariance as far as rows leave it open."""

    each_s: tuple[float, float, float]
    covariance: FloatArray = field(default_factory=lambda: np.zeros((3, 3)))

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> Law:
        """From numbers as files have them. ValueError unless something takes time and each number is above zero."""
        if not numbers or not all(0.0 < value < np.inf for value in numbers.values()):
            raise ValueError("a law has numbers above zero, and one at least")
        byte, flop = (1.0 / numbers[name] if name in numbers else 0.0 for name in ("bytes_per_s", "flops_per_s"))
        return cls((numbers.get("launch_s", 0.0), byte, flop))

    @property
    def numbers(self) -> dict[str, float]:
        """As files have them, SI."""
        launch, byte, flop = self.each_s
        found = {"launch_s": launch, "bytes_per_s": byte and 1.0 / byte, "flops_per_s": flop and 1.0 / flop}
        return {name: float(f"{value:.{_DIGITS}g}") for name, value in found.items() if value}

    def seconds(self, rows: Rows) -> FloatArray:
        """The device's own time of every row."""
        return np.asarray(np.maximum(terms(rows) @ np.array(self.each_s), _LEAST_S))

    def words(self) -> str:
        """For people: the sum, with the terms that take time."""
        over = {"launch_s": "", "bytes_per_s": "bytes / ", "flops_per_s": "operations / "}
        return " + ".join(f"{over[name]}{value:.4g} {UNITS[name]}" for name, value in self.numbers.items())

    def deviation(self, rows: Rows) -> FloatArray:
        """One standard deviation (log) of every row's time as far as it comes from the numbers': grows off the rows."""
        share = _shares(self, rows)
        return np.asarray(np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", share, self.covariance, share), 0.0)))

    def over(
        self, mean: FloatArray, spread: FloatArray, frozen: Device, rows: Rows, calibration: float
    ) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the time over the formula's, and its 90% half-width, from a process's answer over the law.

        ``frozen``: the device as it was fitted, so that what is changed of a device since acts through its formula.
        ``calibration``: the process's own factor on what it is unsure of, which the law's numbers take too.
        """
        bare = replace(rows, choices={**rows.choices, "dispatch": "device"})
        formula = replace(frozen, residuals={}).cost(bare, intervals=False).duration_s
        doubt = calibration * Z90 * self.deviation(rows)
        return mean + np.log(self.seconds(rows) / formula), np.hypot(spread, doubt)

    def doubted(self, rows: Rows, noise: FloatArray, scales: Scales) -> Law:
        """With the covariance that the rows it was fitted to leave.

        ``noise``: each row's noise variance over the common one. What a residual on top takes counts as noise too. A
        term that no row tells may take as long as a whole row, where it counts most.
        """
        share = _shares(self, rows)
        variance = scales.noise**2 * noise + scales.wide**2 + scales.narrow**2
        most = share.max(0)
        told = most > 0.0
        unit = share[:, told] / most[told]
        inside = np.linalg.inv(unit.T @ (unit / variance[:, None]) + np.eye(int(told.sum())))
        covariance = np.zeros((3, 3))
        covariance[np.ix_(told, told)] = inside / np.outer(most[told], most[told])
        return replace(self, covariance=covariance)

    def tells(self, rows: Rows) -> bool:
        """Whether rows bear it: work is enough of some row's time, and each term is told from the others."""
        share = _shares(self, rows)
        seen = np.sqrt(np.diag(self.covariance)) * share.max(0)
        return bool((1.0 - share[:, 0] * self.each_s[0]).max() >= _LEAST_WORK and seen.max() <= _LEAST_TOLD)


def _shares(law: Law, rows: Rows) -> FloatArray:
    """How far (log) the time moves with each number: the term over the whole."""
    return np.asarray(terms(rows) / law.seconds(rows)[..., None])


def fit_law(rows: Rows, seconds: FloatArray, noise: FloatArray) -> Law:
    """The law of least squares in relative error, with numbers of zero or more; rows that surprise count for less.

    ``noise``: each row's noise variance over that of a plain row.
    """
    from scipy.optimize import nnls

    each = terms(rows)
    size = np.maximum((each / seconds[:, None]).max(0), 1e-300)
    said, found = seconds, np.zeros(3)
    weight = 1.0 / np.sqrt(noise)
    for _ in range(_ROUNDS):
        found = nnls(each / size / said[:, None] * weight[:, None], seconds / said * weight)[0] / size
        answer = each @ found
        error = np.log(seconds / np.maximum(answer, 1e-300))
        typical = max(1.4826 * float(np.median(np.abs(error))), 1e-4)
        weight = np.sqrt(np.minimum(1.0, _SURPRISE * typical / np.maximum(np.abs(error), 1e-12)) / noise)
        # Errors relative to what was measured would favour what is too short; where the two are far apart, they stay.
        said = np.clip(answer, 0.5 * seconds, 2.0 * seconds)
    launch, byte, flop = found.tolist()
    return Law((launch, byte, flop))
