"""The search of a fit does not follow rounding errors, also where a number starts at a bound."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from windtunnel.core.device import Parameters
from windtunnel.core.ops import OPERATIONS, FloatArray, Rows
from windtunnel_models.catalogue import shipped_catalogue
from windtunnel_models.learned.calibration import Group
from windtunnel_models.learned.fit import fit_once
from windtunnel_models.learned.least_squares import least_squares


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("rounding", [0.0, 1e-17, -1e-17, 1e-9, -1e-9])
def test_a_number_that_starts_at_a_bound_is_found_on_its_free_side(side: float, rounding: float) -> None:
    def errors(shifts: FloatArray) -> FloatArray:
        return 10.0 * np.array([side * max(side * shifts[0], 0.0) - 2.0 * side, shifts[1] - 1.0])

    found = least_squares(errors, np.array([rounding, 0.0]), steps=30)
    assert found.shifts == pytest.approx([2.0 * side * 100.0 / 101.0, 100.0 / 101.0], rel=1e-6)


def test_numbers_without_a_common_row_are_varied_together_with_the_same_result() -> None:
    calls = 0

    def errors(shifts: FloatArray) -> FloatArray:
        nonlocal calls
        calls += 1
        return np.concatenate([np.expm1(0.3 * shifts[:8]) - 1.0, [shifts[8] + shifts[0]]])

    reads = np.zeros((9, 9), dtype=bool)
    reads[np.arange(8), np.arange(8)] = True
    reads[8, [0, 8]] = True
    together = least_squares(errors, np.zeros(9), steps=30, reads=reads)
    few, calls = calls, 0
    apart = least_squares(errors, np.zeros(9), steps=30)
    assert together.shifts == pytest.approx(apart.shifts, rel=1e-12)
    assert few < calls / 2


def test_a_fit_is_the_same_on_times_that_differ_by_rounding(root: Path) -> None:
    """With differences relative to the numbers, as SciPy takes them, two of these three fits found another minimum."""
    with (root / "scenarios" / "measurements" / "arc-pro-b60-gemm.csv").open(newline="") as file:
        table = list(csv.DictReader(file))[::5]
    count = len(table)
    numbers = {name: np.array([float(row[name]) for row in table]) for name in ("m", "n", "k")}
    context = {"dtype": "bfloat16", "activations": "wide", "dispatch": "device", "clock": "burst", "cache": "cold"}
    rows = Rows(OPERATIONS["gemm"], context, numbers | {"batch": np.ones(count)})
    device = shipped_catalogue().device("arc-pro-b60", calibrated=False)
    own = device.kind.own_numbers["gemm"](Parameters(device), rows)
    device = replace(device, values={**own, **device.values})
    measured = np.array([float(row["latency_s"]) for row in table])
    fits = []
    for seed in range(3):
        seconds = measured * (1.0 + (1e-12 * np.random.default_rng(seed).standard_normal(count) if seed else 0.0))
        group = Group(rows, seconds, np.arange(count), np.zeros(count, dtype=np.int64), np.ones(count))
        fits.append(fit_once(device, [group]).shifts)
    assert max(fits[0].values()) > 1.0
    for other in fits[1:]:
        assert other == pytest.approx(fits[0], rel=1e-8, abs=1e-8)
