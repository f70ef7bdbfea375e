"""Jobs of several devices: both engines against each other and against the oracle, on random scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.differential.comparison import assert_same, prepared
from tests.differential.test_engines import TIED, scenarios
from tests.differential.test_oracle import KNOWN, expected, rows

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions import faults, gangs, single, work

SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@st.composite
def with_gangs(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with a central queue, whose jobs occupy one or several devices."""
    data = draw(scenarios())
    data["policy"].pop("batch", None)
    data["policy"] |= {"route": "central", "backfill": draw(st.booleans())}
    most = max(entry["count"] for entry in data["fleet"])
    for one in data["workload"]:
        size = draw(st.integers(1, most))
        if size > 1 or draw(st.booleans()):
            one["gang"] = size
    return data


def busy_time_is_conserved(ready: PreparedRun, recording: Recording) -> None:
    """Without faults, the devices are busy for the time of each job on each of its devices."""
    jobs = recording.jobs
    ended = [min(f, recording.end) if f >= 0 else recording.end for f in jobs.finish.tolist()]
    sizes = [ready.workloads[number].gang for number in jobs.workload.tolist()]
    began = jobs.start.tolist()
    served = sum(g * (e - s) for g, s, e in zip(sizes, began, ended, strict=True) if s >= 0)
    assert sum(device.busy_ticks for device in recording.devices) == served


@settings(max_examples=200, deadline=None, suppress_health_check=SUPPRESSED)
@given(with_gangs())
def test_both_engines_agree_on_jobs_of_several_devices(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    one, other = process.run(ready), compiled.run(ready)
    assert_same(one, other)
    invariants.check(one)
    if not data["faults"] and "power_budget" not in data:
        busy_time_is_conserved(ready, one)


@settings(max_examples=120, deadline=None, suppress_health_check=SUPPRESSED)
@given(with_gangs())
def test_both_engines_do_with_gangs_what_the_oracle_does(data: dict[str, Any]) -> None:
    data.pop("power_budget", None)
    data["faults"] = [fault for fault in data["faults"] if fault["kind"] in KNOWN]
    try:
        ready = prepared(data)
    except InputError:
        reject()
    wanted = expected(ready)
    assert rows(process.run(ready)) == wanted
    assert rows(compiled.run(ready)) == wanted
