"""The linear program of the lower bounds: loads agree with the whole program, and cuts hold for every other fleet."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from windtunnel.planning.bounds import DualCut
from windtunnel.planning.linear_program import LinearProgram

_VALUES = st.floats(0.01, 10)


@st.composite
def programs(draw: st.DrawFn) -> LinearProgram:
    """Jobs in one or two blocks, which several classes do with one or two resources; a share may need no resource."""
    classes = draw(st.integers(1, 3))
    program = LinearProgram(classes)
    for _ in range(draw(st.integers(1, 2))):
        bins = draw(st.integers(1, 3))
        able = [[draw(st.integers(0, 3)) > 0 for _ in range(bins)] for _ in range(classes)]
        shares = np.full((classes, bins), -1)
        for c, runs in enumerate(able):
            here = np.flatnonzero(runs)
            shares[c, here] = program.columns(len(here), 1.0, c)
        late = program.columns(bins, draw(_VALUES)) if draw(st.booleans()) else None
        for b in range(bins):
            columns = shares[:, b][shares[:, b] >= 0]
            if late is not None:
                columns = np.append(columns, late[b])
            program.at_most(columns, np.full(len(columns), -1.0), -1.0)
        if late is not None:
            program.at_most(late, np.ones(bins), draw(_VALUES))
        for c, presence in product(range(classes), [draw(st.booleans())]):
            here = shares[c][shares[c] >= 0]
            for _ in range(draw(st.integers(1, 2)) if len(here) else 0):
                values = np.array([draw(st.one_of(st.just(0.0), _VALUES)) for _ in here])
                program.at_most(here, values, 0.0, c, draw(_VALUES))
            for column in here if presence else ():
                program.at_most(np.array([column]), np.array([draw(_VALUES)]), 0.0, c, 1.0)
    return program


def whole(program: LinearProgram, counts: tuple[int, ...]) -> float:
    """Return the minimum load by the program with all columns, those of absent classes being 0."""
    matrix = program.matrix().toarray()
    shares = len(program.upper)
    absent = [of >= 0 and not counts[of] for of in program._class_of_column]
    upper = [0.0 if gone else most for gone, most in zip(absent, program.upper, strict=True)]
    answer = linprog(
        [0.0] * shares + [1.0],
        A_ub=np.column_stack([matrix[:, :shares], matrix[:, shares:] @ np.array(counts)]),
        b_ub=program.limit,
        bounds=[*((0.0, most) for most in upper), (0.0, None)],
    )
    return float(answer.fun) if answer.status == 0 else math.inf


@given(programs(), st.data())
def test_a_load_is_that_of_the_whole_program_and_its_cut_is_below_the_load_of_every_other_fleet(
    program: LinearProgram, data: st.DataObject
) -> None:
    fleets = [f for f in product(range(4), repeat=program.classes) if any(f)]
    loads = np.array([whole(program, fleet) for fleet in fleets])
    number = data.draw(st.integers(0, len(fleets) - 1))
    load, weights = program.load(fleets[number])
    assert load == pytest.approx(loads[number], rel=1e-6, abs=1e-9)
    if math.isfinite(load):
        cut = DualCut(weights[None, :], np.array([load])).min_load(np.array(fleets))
        assert (cut <= loads * (1 + 1e-6) + 1e-9).all()
        assert cut[number] == pytest.approx(load, rel=1e-6, abs=1e-9)
