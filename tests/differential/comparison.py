"""Compares what the two engines recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core.recording import Recording
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

CATALOGUE = windtunnel.catalogue([Path(__file__).parents[1] / "data" / "catalog"])
"""The shipped devices, and reconfigurable cards whose loads take about as long as jobs."""


def prepared(data: dict[str, Any]) -> PreparedRun:
    return prepare_run(scenario_from_data(data), CATALOGUE)


def canonical_log(recording: Recording) -> list[tuple[float, ...]]:
    """What the engines are compared by: hits of prefix caches, job, device, start, end, status, energy, starts."""
    jobs = recording.jobs
    hits = [] if jobs.hits is None or jobs.hit_blocks is None else [jobs.hits, jobs.hit_blocks]
    columns = (*hits, jobs.device, jobs.start, jobs.finish, jobs.first, jobs.status, jobs.energy_j, jobs.starts)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_same(one: Recording, other: Recording) -> None:
    assert canonical_log(one) == canonical_log(other)
    assert one.end == other.end
    for steps, others in ((one.power, other.power), (one.waiting, other.waiting)):
        assert np.array_equal(steps.ticks, others.ticks)
        assert np.array_equal(steps.values, others.values)
    assert list(one.devices) == list(other.devices)
    assert spelled(one) == spelled(other)
    for field in dataclasses.fields(one.token_gaps):
        assert np.array_equal(getattr(one.token_gaps, field.name), getattr(other.token_gaps, field.name))
    assert (one.use is None) == (other.use is None)
    if one.use is not None and other.use is not None:
        assert_equal_fields(one.use, other.use)
    assert one.notes == other.notes
    assert one.progress == other.progress
    assert one.loads == other.loads


def assert_equal_fields(one: Any, other: Any) -> None:
    """Every field of two dataclasses is equal: arrays element by element, and sequences of dataclasses field by field."""
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, list) and mine and dataclasses.is_dataclass(mine[0]):
            for first, second in zip(mine, theirs, strict=True):
                assert_equal_fields(first, second)
        else:
            assert np.array_equal(mine, theirs), field.name


def spelled(recording: Recording) -> list[tuple[Any, ...]]:
    """Intervals in the order in which they were written, with their words."""
    table = recording.intervals
    assert table is not None
    rows = zip(
        *(c.tolist() for c in (table.device, table.lane, table.name, table.start, table.end, table.watts)), strict=True
    )
    return [(d, table.words[lane], table.words[name], s, e, w) for d, lane, name, s, e, w in rows]
