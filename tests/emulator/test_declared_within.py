"""Arrays that a kernel declares inside a branch or a loop: allocated before it runs, one for each name."""

from __future__ import annotations

import numpy as np
import pytest

import windtunnel
from windtunnel import errors, f32, i32, local, shared, syncthreads, threadIdx
from windtunnel.codegen import TARGETS, transpile
from windtunnel.language.parse import parse


def _reversed(x, n):
    part = shared.array(32, f32)
    part[threadIdx.x] = x[threadIdx.x]
    syncthreads()
    return part[n - 1 - threadIdx.x]


@windtunnel.kernel
def turned(x: f32[:], n: i32):
    t = threadIdx.x
    if n > 1:
        mine = local.array(2, f32)
        for turn in range(2):
            part = shared.array(32, f32)
            part[t] = x[t] + turn
            syncthreads()
            mine[turn] = part[n - 1 - t]
            syncthreads()
        x[t] = mine[0] + mine[1]
        syncthreads()
        x[t] = _reversed(x, n)


@windtunnel.kernel
def twice(x: f32[:], n: i32):
    if n > 1:
        part = shared.array(32, f32)
        part[threadIdx.x] = 1.0
    else:
        part = shared.array(32, f32)
        part[threadIdx.x] = 2.0
    x[threadIdx.x] = part[threadIdx.x]


@windtunnel.kernel
def unset(x: f32[:], n: i32):
    if n > 1:
        part = local.array(2, f32)
        part[0] = 1.0
    x[threadIdx.x] = part[1]


@pytest.mark.parametrize("schedule", [None, 3])
def test_an_array_declared_in_a_branch_or_a_loop_is_the_block_s_own(schedule: int | None) -> None:
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        given = np.arange(32, dtype=np.float32)
        x = accelerator.to_device(given)
        accelerator.launch(turned, 1, 32, x, 32)
        assert (accelerator.to_host(x) == 2 * given + 1).all()


@pytest.mark.parametrize("schedule", [None, 3])
def test_its_elements_are_unset_until_they_are_written(schedule: int | None) -> None:
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        x = accelerator.to_device(np.zeros(32, np.float32))
        with pytest.raises(errors.UninitializedRead, match="part"):
            accelerator.launch(unset, 1, 32, x, 32)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(errors.InputError, match="'part' is an array already"):
        parse(twice.function, frozenset({"x"}))


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_declares_it_at_the_top(target: str) -> None:
    source = transpile(turned.function, target, (32, 1, 1)).source
    assert source.count("part") >= 3
