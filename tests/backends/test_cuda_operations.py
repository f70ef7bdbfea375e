"""Operations over CuPy's driver, on a stand-in for CuPy: what is launched, replayed and answered. No GPU, no times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from tests.backends.fake_cupy import FakeCupy

from windtunnel.backends.common import trials
from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.cuda.trials import CupyOperations
from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS


def columns(op: str, /, **given: Any) -> dict[str, float | str]:
    return {c.name: c.parse(given.get(c.name, c.default)) for c in OPERATIONS.find(op).all_columns()}


@pytest.fixture
def operations() -> Iterator[CupyOperations]:
    cupy = FakeCupy()
    cupy.stay.add("windtunnel_echo")  # what stays has to run while the host goes on
    found = CupyOperations(cupy_context.open_context(cupy, "cuda", 0), {"cupy": "a stand-in"})
    yield found
    found.close()


CASES = {
    "add": ("vector_add", {"n": 1000}),
    "add of int8": ("vector_add", {"n": 1000, "dtype": "int8"}),
    "add, one by one": ("vector_add", {"n": 1000, "dispatch": "eager"}),
    "add in a graph": ("vector_add", {"n": 1000, "dispatch": "graph"}),
    "softmax": ("elementwise", {"op": "softmax", "rows": 3, "width": 100}),
    "product": ("gemm", {"m": 70, "n": 33, "k": 20, "dtype": "float32"}),
    "stencil": ("stencil", {"nx": 20, "ny": 10, "nz": 3, "dtype": "float32"}),
    "transform": ("fft", {"n": 16, "batch": 3}),
    "launches": ("launch", {"count": 5}),
    "launches in a graph": ("launch", {"mode": "graph", "count": 5}),
    "commands": ("launch", {"mode": "persistent", "count": 100}),
    "pageable in": ("copy", {"bytes": 1001, "direction": "h2d", "memory": "pageable"}),
    "pinned in": ("copy", {"bytes": 1001, "direction": "h2d", "memory": "pinned"}),
    "pinned out": ("copy", {"bytes": 1001, "direction": "d2h", "memory": "pinned"}),
    "within": ("copy", {"bytes": 1001, "direction": "d2d"}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operation_is_done_and_its_numbers_are_right(operations: CupyOperations, case: str) -> None:
    op, given = CASES[case]
    assert operations.refusal(op, columns(op, **given)) is None
    trial = operations.trial(op, columns(op, **given))
    assert math.isfinite(trial.run(2)) and trial.run(1) >= 0.0
    assert trial.check() <= 1.0
    trial.close()
    with pytest.raises(errors.DeviceError):
        trial.run()


@pytest.mark.parametrize("case", ["add", "pinned in", "pinned out", "within", "transform"])
def test_many_runs_are_replays_of_small_graphs(
    operations: CupyOperations, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement of power repeats an operation for a second, and one graph of so many would take minutes to capture."""
    monkeypatch.setattr(trials, "LARGEST_GRAPH", 8)
    graph: Any = operations._cupy.driver.cupy.cuda.Graph
    launched, launch = [], graph.launch

    def watched(self: Any, stream: Any = None) -> None:
        launched.append(len(self._nodes))
        launch(self, stream)

    monkeypatch.setattr(graph, "launch", watched)
    trial = operations.trial(CASES[case][0], columns(CASES[case][0], **CASES[case][1]))
    trial.run(21)
    assert set(launched) == {5, 8}
    assert sum(launched) == 8 + 5 + 21, "each graph is launched once to prepare it"
    assert trial.check() <= 1.0
    trial.close()


def test_what_stays_has_no_numbers_before_it_ran_and_is_cuda_s_alone(operations: CupyOperations) -> None:
    asked = columns("launch", mode="persistent")
    trial = operations.trial("launch", asked)
    assert trial.timer == "host" and trial.check() == math.inf
    rocm = CupyOperations(cupy_context.open_context(FakeCupy(hip=True, warpSize=64), "hip", 0), {})
    why = rocm.refusal("launch", asked)
    assert why is not None and "requires HIP" in why
    with pytest.raises(errors.UnsupportedOperationError, match="requires HIP"):
        rocm.trial("launch", asked)
    rocm.close()
