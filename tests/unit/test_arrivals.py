"""What is wrong with arrivals is named where it is; what they say of themselves; runs of every process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError, Location
from windtunnel.engine.arrivals import arrival_blocks, arrivals
from windtunnel.scenario.arrivals import Batches
from windtunnel.scenario.read import json_schema, scenario_from_data

RATES = [f"{1 + h} /s" for h in range(24)]
STATES = [{"rate": "10 /s", "sojourn": "1 s"}, {"rate": "100 /s", "sojourn": "1 s"}]


def data(*described: Any, stop: Any = None) -> dict[str, Any]:
    found = {
        "schema": 1,
        "name": "arrivals",
        "fleet": [{"device": "server", "count": 4}],
        "workload": [
            {"name": f"w{i}", "arrivals": a, "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}]}
            for i, a in enumerate(described)
        ],
    }
    return found if stop is None else found | {"stop": stop}


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({"process": "weibul", "rate": "1 /s"}, "arrivals.process: 'weibul' is not a valid value"),
        ({"process": "weibul", "rate": "1 /s"}, "did you mean 'weibull'?"),
        ({"process": "weibull", "rate": "1 /s", "cv": 1000}, "arrivals.cv: this is 1000; expected at most 100"),
        ({"process": "weibull", "rate": "1 /s", "vc": 1}, "arrivals.vc: unknown key 'vc'; expected one of process, rate, cv; did you mean 'cv'?"),
        ({"process": "mmpp", "states": STATES[:1]}, "arrivals.states: this has 1; expected at least 2 of them"),
        ({"process": "mmpp", "states": [*STATES, {"rate": "1 /s"}]}, "arrivals.states[2].sojourn: 'sojourn' is missing"),
        ({"process": "mmpp", "states": [s | {"rate": "0 /s"} for s in STATES]}, "workload[0].arrivals: no state has jobs"),
        ({"process": "mmpp", "states": [STATES[0] | {"next": [1, 0]}, STATES[1]]}, "states[0].next is not a distribution over the other states"),
        ({"process": "mmpp", "states": [STATES[0] | {"next": [0, 1, 0]}, STATES[1]]}, "states[0].next has 3 entries; expected 2"),
        (
            {"process": "mmpp", "states": [*(s | {"next": n} for s, n in zip(STATES, ([0, 1, 0], [1, 0, 0]), strict=True)), STATES[0]]},
            "states[2] is not reachable from states[0]",
        ),
        ({"process": "mmpp", "states": [s | {"sojourn": "1 us"} for s in STATES]}, "the state changes 18,182 times per job; expected at most 100 times"),
        ({"process": "diurnal", "rates": RATES[:23]}, "arrivals.rates: this has 23; expected at least 24 of them"),
        ({"process": "diurnal", "rates": ["0 /s"] * 24}, "workload[0].arrivals: no hour has jobs"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 0.5}, "'peak' is missing; expected rates (24 of them), or rate, amplitude and peak"),
        ({"process": "diurnal", "rates": RATES, "rate": "1 /s"}, "a diurnal process has either rates, or rate, amplitude and peak, not both"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 1.5, "peak": "12:00"}, "arrivals.amplitude: this is 1.5; expected at most 1"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 1, "peak": "noon"}, "arrivals.peak: 'noon' is not a time of day; expected such as '08:30'"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 1, "peak": "24:00"}, "'24:00' is not a time of day"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 1, "peak": 12}, "12 is not a time of day"),
        ({"process": "diurnal", "rate": "1 /s", "amplitude": 1, "peak": "12:00", "shape": "step"}, "shape is only for rates"),
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "1 s"}, "spikes need either at or mean_interval; expected at: [10 s, ...], or mean_interval: 1 min"),
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "1 s", "at": []}, "arrivals.at"),
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "1 s", "at": ["1"]}, "arrivals.at[0]: '1' has no unit"),
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "1 s", "at": ["1 s"], "clock": "x"}, "clock is only for random spikes"),
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "1 s", "mean_interval": "1 ms"}, "there are too many spikes per job"),
        ({"process": "batches", "mean_interval": "1 s", "size": 0.5}, "arrivals.size: this is 0.5; expected at least 1"),
        ({"process": "batches", "mean_interval": "1 ms", "size": 1e6, "spread": "1 h"}, "more than ten million jobs overlap"),
        ({"process": "mix", "processes": []}, "arrivals.processes"),
        ({"process": "mix", "processes": [{"process": "trace", "file": "a.csv"}]}, "arrivals.processes[0].process: 'trace' is not a valid value; expected one of poisson"),
        ({"process": "mix", "processes": [{"process": "poisson", "rat": "1 /s"}]}, "arrivals.processes[0].rat: unknown key 'rat'; expected one of process, rate; did you mean 'rate'?"),
        ({"process": "burst", "rate": "1 /s", "burst_rate": "2 /s", "every": "1 s", "duration": "2 s"}, "workload[0].arrivals: a burst is longer"),
        ({"process": "mix", "processes": [{"process": "poisson", "rate": "1 /s"}]}, "the mix arrivals of 'w0' do not end"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(described: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        windtunnel.run(scenario_from_data(data(described)))
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_seed_of_a_run_replaces_that_of_a_scenario_and_changes_are_of_files() -> None:
    described = data({"process": "poisson", "rate": "1 /s"}, stop={"jobs": 20})
    mean = {
        seed: windtunnel.run(scenario_from_data(described), seed=seed, engine="process").result.latency_s.mean.value
        for seed in (None, 1, 2)
    }
    stated = windtunnel.run(scenario_from_data(described | {"seed": 2}), engine="process")
    assert mean[None] == mean[1] != mean[2] == stated.result.latency_s.mean.value
    with pytest.raises(InputError, match="changes are made to the file"):
        windtunnel.run(scenario_from_data(described), changes=["seed=2"])


def test_who_names_a_shared_clock_agrees_on_how_often_it_strikes() -> None:
    batches = {"process": "batches", "mean_interval": "1 s", "size": 2.0, "clock": "incidents"}
    spikes = {
        "process": "spikes",
        "rate": "1 /s",
        "factor": 2,
        "duration": "1 s",
        "mean_interval": "2 s",
        "clock": "incidents",
    }
    with pytest.raises(InputError) as caught:
        scenario_from_data(data(batches, {"process": "mix", "processes": [spikes]}))
    assert str(caught.value) == (
        "scenario: workload[1].arrivals.processes[0].mean_interval: the shared clock 'incidents' has a mean interval of 2 s here; "
        "expected 1 s, as in 'w0'"
    )
    scenario_from_data(data(batches, {"process": "mix", "processes": [spikes | {"mean_interval": "1000 ms"}, batches]}))


def test_a_shared_clock_goes_its_own_way_however_heavy_the_load() -> None:
    batches = {"process": "batches", "mean_interval": "1 s", "size": 2.0, "clock": "incidents"}
    process = scenario_from_data(data(batches)).workload[0].arrivals
    assert isinstance(process, Batches)
    assert (process.scaled(3.0).mean_interval, process.scaled(3.0).mean_rate_per_s()) == (1.0, 6.0)
    with pytest.raises(InputError, match=r"cannot be made 0\.4 times as large"):
        process.scaled(0.4)


@pytest.mark.parametrize(
    ("described", "mean", "stationary"),
    [
        ({"process": "weibull", "rate": "3 /min", "cv": 2}, 0.05, True),
        ({"process": "burst", "rate": "10 /s", "burst_rate": "100 /s", "every": "10 s", "duration": "1 s"}, 19.0, False),
        ({"process": "mmpp", "states": [STATES[0] | {"sojourn": "8 s"}, STATES[1]]}, 20.0, True),
        ({"process": "diurnal", "rates": RATES}, 12.5, False),
        ({"process": "diurnal", "rate": "7 /s", "amplitude": 1, "peak": "0:00"}, 7.0, False),
        ({"process": "spikes", "rate": "7 /s", "factor": 3, "duration": "1 s", "at": ["5 s"]}, 7.0, False),
        # Spikes as long as their mean distance cover 1 - 1/e of the time.
        ({"process": "spikes", "rate": "1 /s", "factor": 2, "duration": "4 s", "mean_interval": "4 s"}, 2 - np.exp(-1), True),
        ({"process": "batches", "mean_interval": "2 s", "size": 5, "spread": "1 s"}, 2.5, True),
        ({"process": "mix", "processes": [{"process": "poisson", "rate": "1 /s"}, {"process": "diurnal", "rates": RATES}]}, 13.5, False),
    ],
)  # fmt: skip
def test_a_process_says_its_mean_rate_and_whether_it_is_stationary(
    described: dict[str, Any], mean: float, stationary: bool
) -> None:
    scenario = scenario_from_data(data(described, stop={"jobs": 20}))
    stream = arrivals(scenario.workload[0], 1, scenario.stop, Path(), lambda *_: Location())
    assert stream.mean_rate_per_s == pytest.approx(mean)
    assert stream.stationary is stationary
    # And a run of it completes.
    assert windtunnel.run(scenario).result.jobs.completed == 20


def test_a_day_begins_where_it_is_said_to() -> None:
    # A single busy hour, so that the first job says when it comes: from 12:00, and the run begins at 11:15.
    rates = ["0 /h"] * 12 + ["36000 /h"] + ["0 /h"] * 11
    for shape, first_s in (("step", 45 * 60.0), ("linear", 0.0)):
        described = {"process": "diurnal", "rates": rates, "shape": shape, "start_time": "11:15"}
        scenario = scenario_from_data(data(described, stop={"time": "2.75 h"}))
        ticks = arrivals(scenario.workload[0], 1, scenario.stop, Path(), lambda *_: Location()).ticks
        hours = 11.25 + ticks / 3.6e15
        if shape == "step":
            assert first_s < ticks[0] / 1e12 < first_s + 10
            assert len(ticks) == pytest.approx(36_000, abs=6 * 190)
            assert bool(((hours >= 12) & (hours < 13)).all())
        else:
            # Up from 11:00 to 12:00 and down to 13:00: half an hour's worth on either side, less what was before 11:15.
            assert int((hours < 12).sum()) == pytest.approx(36_000 * (0.5 - 0.25**2 / 2), abs=6 * 130)
            assert int((hours >= 12).sum()) == pytest.approx(18_000, abs=6 * 135)
            assert hours.max() < 13


def test_arrivals_beyond_106_days_are_refused_for_a_count_and_cut_for_a_time() -> None:
    slow = {
        "process": "mix",
        "processes": [{"process": "poisson", "rate": "1 /d"}, {"process": "diurnal", "rates": ["0.1 /d"] * 24}],
    }
    with pytest.raises(InputError, match="take longer than the 106 days"):
        windtunnel.run(scenario_from_data(data(slow, stop={"jobs": 5000})))
    scenario = scenario_from_data(data(slow, stop={"time": "100 d"}))
    assert 60 < len(arrivals(scenario.workload[0], 1, scenario.stop, Path(), lambda *_: Location()).ticks) < 160


def test_blocks_of_a_trace_are_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t\n" + "".join(f"{i}\n" for i in range(50)))
    described = {"process": "trace", "file": "t.csv", "time": "t", "repeat": 1000}
    scenario = scenario_from_data(data(described, stop={"jobs": 40_000}), str(tmp_path / "s.yaml"))
    blocks = list(arrival_blocks(scenario.workload[0], 1, scenario.stop, tmp_path, lambda *_: Location()))
    assert np.array_equal(np.concatenate(blocks), np.arange(40_000) * 10**12)
    assert len(blocks) > 1


def test_the_schema_knows_every_process_by_its_name() -> None:
    mapping = json_schema()["$defs"]["Workload"]["properties"]["arrivals"]["discriminator"]["mapping"]
    assert set(mapping) >= {
        "poisson",
        "deterministic",
        "gamma",
        "weibull",
        "burst",
        "mmpp",
        "diurnal",
        "spikes",
        "batches",
        "closed",
        "mix",
        "trace",
    }
    assert json_schema()["$defs"]["Diurnal"]["properties"]["start_time"]["pattern"]
