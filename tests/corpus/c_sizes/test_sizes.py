"""Kernels of two and three dimensions with sizes that `check` makes up: no false alarm, and which mistakes are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.corpus.c_sizes.kernels import INDICES, KERNELS, LATER, MISTAKES, Sized
from tests.corpus.c_sizes.twins import TWINS

from windtunnel.app.check import check
from windtunnel.app.check_arguments import LaunchRequest
from windtunnel.app.check_launches import dims

CASES = {
    **{name: (kernel, False) for name, kernel in KERNELS.items()},
    **{
        f"{name}, wrong": (KERNELS[name]._replace(source=KERNELS[name].source.replace(*change)), True)
        for name, change in MISTAKES.items()
    },
    **{name: (Sized(source, "3,2", "16,8"), wrong) for name, (source, wrong) in LATER.items()},
    **{name: (kernel, False) for name, (kernel, _) in TWINS.items()},
    **{
        f"{name}, {mistake}": (kernel._replace(source=kernel.source.replace(*change)), True)
        for name, (kernel, twins) in TWINS.items()
        for mistake, change in twins.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_are_made_up_fit_together_and_show_what_lacks_a_guard(tmp_path: Path, name: str) -> None:
    kernel, wrong = CASES[name]
    file = tmp_path / ("kernel.cl" if "__kernel" in kernel.source else "kernel.cu")
    file.write_text(kernel.source.replace("INDICES", INDICES))
    found = check([LaunchRequest(file, None, dims(kernel.grid, "grid"), dims(kernel.block, "block"))])
    assert bool(found.findings) == wrong, [one.message for one in found.findings]


def test_the_second_launch_and_its_sizes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text(LATER["one more"][0].replace("INDICES", INDICES))
    (found,) = check([LaunchRequest(file, None, (3, 2, 1), (16, 8, 1))]).findings
    assert "in a second launch, which check adds, with 'h' of 14 and 'w' of 43" in found.message
