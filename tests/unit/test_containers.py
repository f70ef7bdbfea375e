"""The heap of events and the index of devices, compared with sorting and searching; and the layout of their tables."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from windtunnel.core.recording import IntervalTable
from windtunnel.engine.transitions import heap, tables
from windtunnel.engine.transitions.containers import (
    NOT_HERE,
    fill_index,
    first_marked,
    index_size,
    is_marked,
    mark,
    tree_set,
    tree_size,
)
from windtunnel.engine.transitions.heap import ROOT


def _entries(count: int) -> list[Any]:
    return [SimpleNamespace(tick=0, which=0) for _ in range(count)]


@pytest.mark.parametrize("ticks", [3, 1000])
def test_a_heap_gives_entries_in_the_order_of_tick_and_number(ticks: int) -> None:
    rng = np.random.default_rng(ticks)
    entries, size, kept = _entries(ROOT + 400), 0, []
    for number in range(300):
        tick = int(rng.integers(ticks))
        size = heap.heap_push(entries, size, tick, number)
        kept.append((tick, number))
        if number % 5 == 4:  # the first entry is replaced, as when a device starts its next job
            kept.remove(min(kept))
            entries[ROOT].tick, entries[ROOT].which = tick, 1000 + number
            kept.append((tick, 1000 + number))
            heap.sift_down(entries, size, ROOT)
        if number % 7 == 6:
            of = kept[int(rng.integers(len(kept)))]
            kept.remove(of)
            size = heap.heap_remove(entries, size, of[1])
    popped = []
    while size:
        popped.append((entries[ROOT].tick, entries[ROOT].which))
        size = heap.heap_pop(entries, size)
    assert popped == sorted(kept)


@pytest.mark.parametrize("count", [1, 4, 5, 70])
def test_the_index_names_the_first_of_the_devices_with_the_least_load(count: int) -> None:
    rng = np.random.default_rng(count)
    size, leaf = tree_size(count)
    tree = [SimpleNamespace(load=NOT_HERE, winner=0) for _ in range(size)]
    for place in range(size - leaf):
        tree[leaf + place].winner = 100 + place
    loads = [NOT_HERE] * count
    for place in [*range(count), *rng.integers(count, size=500).tolist()]:
        loads[place] = int(rng.choice([0, 1, 2, NOT_HERE]))
        tree_set(tree, ROOT, leaf, place, loads[place])
        assert tree[ROOT].load == min(loads)
        if min(loads) < NOT_HERE:
            assert tree[ROOT].winner == 100 + loads.index(min(loads))


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 5000])
def test_every_record_of_a_new_table_has_the_stated_values(count: int) -> None:
    rows = tables.records(count, tables.JOB, start=-1, on=-1)
    assert len(rows) == count
    for name in tables.JOB.names or ():
        assert (rows[name] == (-1 if name in ("start", "on") else 0)).all()


def test_what_every_job_reads_is_in_whole_cache_lines() -> None:
    for layout, lines in ((tables.JOB, 1), (tables.SLOT, 1), (tables.DEVICE, 2)):
        assert layout.itemsize == 64 * lines
    assert tables.ARRIVAL.itemsize == 32


@pytest.mark.parametrize("devices", [3, 2**16 + 3])
def test_intervals_are_ordered_by_device_and_start(devices: int) -> None:
    rng = np.random.default_rng(devices)
    device, start = rng.integers(devices - 3, devices, 200), rng.permutation(200)
    nothing = np.zeros(200, dtype=np.int64)
    table = IntervalTable(device, nothing, nothing, start, start + 1, np.zeros(200), ["compute"])
    expected = sorted(zip(device.tolist(), start.tolist(), (start + 1).tolist(), strict=True))
    assert list(zip(*(column.tolist() for column in table.by_device), strict=True)) == expected


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1024, 1025, 40_000])
def test_the_index_of_idle_devices_finds_the_lowest_one_that_is_marked(count: int) -> None:
    draw = random.Random(count)
    for begin in (0, 1, count // 2, count):
        size, leaf = index_size(count)
        table = np.zeros(size, dtype=np.int64)
        fill_index(table, leaf, begin)
        words, marked = table.tolist(), set(range(begin))
        for _ in range(200):
            place, is_idle = draw.choice([draw.randrange(count), min(marked, default=0)]), draw.random() < 0.4
            mark(words, 0, leaf, place, is_idle)
            (marked.add if is_idle else marked.discard)(place)
            assert is_marked(words, leaf, place) == is_idle
            assert first_marked(words, 0, leaf) == min(marked, default=-1)
