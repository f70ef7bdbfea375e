"""What would eat the host is refused before it is taken: jobs, memory, files that are no files, code that does not end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import check_all

import windtunnel
from windtunnel.app.calibrate import calibrate
from windtunnel.app.predict import predict_table
from windtunnel.codegen.load import load
from windtunnel.core import memory
from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import decompressed
from windtunnel.core.memory import available_bytes
from windtunnel.core.yamlfile import Document
from windtunnel.engine.arrivals import JobLimit, arrivals
from windtunnel.engine.prepare.offered_load import least_queue
from windtunnel.engine.prepare.scenario import expected_jobs
from windtunnel.policies import own
from windtunnel.policies.bounded import compile_bounded
from windtunnel.scenario.read import check_scenario, read_scenario, scenario_from_data
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.fleet import policy_of
from windtunnel.simulation.run import check, prepare_run
from windtunnel.validation.rows import read_file
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue

SERVICE = [{"service": {"mean": "1 us"}}]
ONE = {"process": "poisson", "rate": "1 /s"}
HOUSEHOLD = {"process": "diurnal", "rates": ["0 /s"] * 8 + ["1e9 /s"] + ["0 /s"] * 15}


def scenario(*processes: dict[str, Any], folder: Path = Path(), **more: Any) -> Scenario:
    workload = [{"name": f"w{i}", "arrivals": p, "ops": SERVICE} for i, p in enumerate(processes)]
    data = {"schema": 1, "name": "x", "fleet": [{"device": "server"}], "workload": workload, **more}
    return scenario_from_data(data, str(folder / "scenario.yaml"))


def refused(asked: Scenario) -> str:
    with pytest.raises(InputError) as caught:
        check(asked, "auto", shipped_catalogue())
    return str(caught.value)


# Jobs.


def poisson(rate: float) -> dict[str, Any]:
    return {"process": "poisson", "rate": f"{rate} /s"}


@pytest.mark.parametrize(
    ("processes", "more", "says"),
    [
        ([poisson(1e9)], {"stop": {"time": "100 s"}}, "about 100,000,000,000 jobs; expected at most 1,000,000,000"),
        # Runs that keep every job have a lower limit.
        ([poisson(3e8)], {"stop": {"time": "1 s"}, "records": "all"}, "300,000,000 jobs; expected at most 200,000,000"),
        ([poisson(1.5e8)] * 2, {"stop": {"time": "1 s"}, "records": "all"}, "w1' have about 300,000,000"),
        ([poisson(6e8)] * 2, {"stop": {"time": "1 s"}}, "w1' have about 1,200,000,000"),
        # Bursts, spikes and hours whose long-run mean says nothing about the first seconds.
        (
            [{"process": "burst", "rate": "1 /s", "burst_rate": "1e9 /s", "every": "11 d", "duration": "10 s"}],
            {"stop": {"time": "10 s"}},
            "10,000,000,000 jobs",
        ),
        (
            [{"process": "spikes", "rate": "1e4 /s", "factor": 1e6, "duration": "1 s", "at": ["0 s", "0.5 s"]}],
            {"stop": {"time": "1.5 s"}},
            "15,000,000,000 jobs",
        ),
        ([{**HOUSEHOLD, "shape": "step", "start_time": "08:00"}], {"stop": {"time": "2 s"}}, "2,000,000,000 jobs"),
        ([{"process": "mix", "processes": [poisson(1e9), ONE]}], {"stop": {"time": "2 s"}}, "2,000,000,002 jobs"),
    ],
)
def test_the_limit_on_jobs_holds_for_rate_times_time(
    monkeypatch: pytest.MonkeyPatch, processes: Any, more: Any, says: str
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 0.0)  # unknown, as on some systems
    assert says in refused(scenario(*processes, **more))


def test_the_expected_number_of_jobs_of_a_time_is_the_mean_of_what_arrives() -> None:
    day = [f"{10 * (i % 5)} /s" for i in range(24)]

    def agrees(case: tuple[dict[str, Any], float]) -> None:
        process, time_s = case
        asked = scenario(process, stop={"time": f"{time_s} s"})
        where = lambda *_: Location()  # noqa: E731
        runs = [len(arrivals(asked.workload[0], seed, asked.stop, Path(), where).ticks) for seed in range(5)]
        expected = expected_jobs(asked)
        assert abs(np.mean(runs) - expected) < 5 * np.sqrt(expected / len(runs)), (process, runs, expected)

    burst = {"process": "burst", "rate": "10 /s", "burst_rate": "500 /s", "every": "10 s", "duration": "2 s"}
    spikes = {"process": "spikes", "rate": "20 /s", "factor": 30, "duration": "3 s", "at": ["9 s", "4 s", "5 s"]}
    diurnal = {"process": "diurnal", "rates": day, "start_time": "02:30"}
    wave = {"process": "diurnal", "rate": "5 /s", "amplitude": 0.9, "peak": "06:00", "start_time": "04:00"}
    check_all(
        [
            *((burst, t) for t in (1.0, 13.5)),
            *((spikes, t) for t in (6.0, 20.0)),
            *(({**diurnal, "shape": shape}, t) for shape in ("step", "linear") for t in (4000.0, 90_000.0)),
            (wave, 7000.0),
            ({"process": "mix", "processes": [burst, wave]}, 20.0),
        ],
        agrees,
    )


def test_jobs_of_all_workloads_count_together_and_no_more_than_the_stop_says() -> None:
    place = Location(field="here")
    limit = JobLimit(100)
    limit.keep(60, "a", place)
    with pytest.raises(InputError, match="workloads up to 'b' have about 120 jobs; expected at most 100"):
        limit.keep(60, "b", place)
    stopped = JobLimit(100, stop_jobs=70)
    stopped.keep(60, "a", place)
    stopped.keep(60, "b", place)


# Memory.


def test_memory_is_estimated_before_it_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2.0**27)
    trace = {"process": "trace", "file": "t.csv", "time": "t"}
    (tmp_path / "t.csv").write_text("t\n" + "".join(f"{i}\n" for i in range(1000)))
    check(scenario(poisson(9e5), stop={"jobs": 10_000_000}), "auto", shipped_catalogue())  # a sample of them is kept
    # Two of three jobs stay in the queue, each with 180 bytes.
    message = refused(scenario(poisson(3e6), stop={"jobs": 10_000_000}))
    assert (
        "the queue of about 6,666,667 jobs that the fleet cannot complete (offered load 3) would take about" in message
    )
    for asked in (
        scenario(poisson(1e6), stop={"jobs": 10_000_000}, records="all"),
        scenario({**trace, "repeat": 100_000}, folder=tmp_path),
        scenario({**trace, "scale": 10_000}, folder=tmp_path),
        # Each of them fits.
        scenario(*[{**trace, "repeat": 150}] * 2, folder=tmp_path),
    ):
        assert "of memory, and this machine has 0.125 GiB available" in refused(asked)
    check(scenario({**trace, "repeat": 150}, folder=tmp_path), "auto", shipped_catalogue())
    table = tmp_path / "wide.csv"
    table.write_text("n,dtype\n" + "1000,float32\n" * 20_000)
    predict_table("vector_add", device_model("l4", shipped_catalogue()), table, tmp_path / "out.csv")
    monkeypatch.setattr(memory, "available_bytes", lambda: 5e6)
    with pytest.raises(InputError, match=r"with 20,001 lines, would take about .* of memory"):
        predict_table("vector_add", device_model("l4", shipped_catalogue()), table, tmp_path / "out.csv")


def queueing(*workloads: dict[str, Any], stop: Any, **more: Any) -> Scenario:
    """A scenario of long runs on fleets of two speeds, with workloads that need more than these."""
    data = {
        "schema": 1,
        "name": "queue",
        "records": "none",
        "fleet": [{"device": "server", "count": 2}, {"device": "server", "name": "fast", "speed": 2}],
        "workload": [{"name": f"w{i}", "arrivals": poisson(3000), **one} for i, one in enumerate(workloads)],
        "stop": stop,
        **more,
    }
    return scenario_from_data(data)


def short(mean: str) -> list[Any]:
    return [{"service": {"mean": mean, "distribution": "exponential"}}]


@pytest.mark.parametrize(
    ("asked", "patient"),
    [
        # No order completes more jobs than the shortest ones first.
        (
            queueing(
                {"ops": short("1 ms")}, {"ops": short("4 ms")}, stop={"time": "20 s"}, policy={"order": "shortest"}
            ),
            False,
        ),
        # Only one class can run the second workload.
        (queueing({"ops": short("1 ms")}, {"ops": short("1 ms"), "devices": ["fast"]}, stop={"time": "20 s"}), False),
        (queueing({"ops": short("2 ms")}, stop={"time": "20 s"}), False),
        # A third of the jobs leave, each when it has waited for a second.
        (queueing({"ops": short("2 ms"), "patience": "1 s"}, stop={"time": "20 s"}), True),
        (queueing(*[{"ops": short("1 ms"), "patience": "1 s"}] * 2, stop={"time": "20 s"}), True),
    ],
)
def test_the_queue_of_a_long_run_is_as_long_as_was_estimated(asked: Scenario, patient: bool) -> None:
    """Seen on the compiled engine, up to what is random in the arrivals."""
    estimate = least_queue(prepare_run(asked, shipped_catalogue(), "compiled"))
    jobs = windtunnel.run(asked).result.jobs
    assert jobs.queued == pytest.approx(estimate, rel=0.1)
    assert (jobs.dropped > 0) == patient


def test_several_workloads_and_patience_are_refused_if_their_queue_exceeds_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2.0**27)
    pair = [poisson(1.5e6), poisson(1.5e6)]
    assert "the queue of about 6,666,667 jobs" in refused(scenario(*pair, stop={"jobs": 10_000_000}))
    check(scenario(*[poisson(4.5e5)] * 2, stop={"jobs": 10_000_000}), "auto", shipped_catalogue())

    def patient(patience: Any) -> Scenario:
        work = {"arrivals": poisson(3e6), "ops": SERVICE, "patience": patience}
        return scenario(stop={"jobs": 10_000_000}, workload=[{"name": "w", **work}])

    for patience in ("10 s", {"distribution": "exponential", "mean": "10 s"}):
        assert "the queue of about 6,666,667 jobs" in refused(patient(patience))
    # Of those that wait for less time exp(-wait / mean) = a third of the jobs stay: log(3) times the mean.
    mean = {"distribution": "exponential", "mean": "50 ms"}
    ready = prepare_run(patient(mean), shipped_catalogue(), "compiled")
    assert least_queue(ready) == pytest.approx(3e6 * 0.05 * np.log(3), rel=0.03)
    check(patient("50 ms"), "auto", shipped_catalogue())


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n")
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 8_000_000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 8_000_000 * 1024
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("600000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert available_bytes(tmp_path, tmp_path / "meminfo") == 500_000


# Files.


def readers(folder: Path) -> dict[str, Callable[[Path], object]]:
    """Everything that reads a file whose name a user gives, by what it reads."""
    l4 = device_model("l4", shipped_catalogue())
    arrivals = {"process": "trace", "time": "t"}

    def trace(path: Path) -> object:
        return check(scenario({**arrivals, "file": str(path)}, folder=folder), "auto", shipped_catalogue())

    def catalogue(path: Path) -> object:
        (folder / "own").mkdir(exist_ok=True)
        (folder / "own" / "x.yaml").unlink(missing_ok=True)
        (folder / "own" / "x.yaml").symlink_to(path)
        return Catalogue([folder / "own"]).device("x")

    def policy(path: Path) -> object:
        (folder / "linked.py").unlink(missing_ok=True)
        (folder / "linked.py").symlink_to(path)
        document = Document({**scenario(ONE).resolved(), "policy": "./linked.py:f"}, str(folder / "s.yaml"))
        document.outside_code = True
        return policy_of(check_scenario(document))

    return {
        "scenario": read_scenario,
        "trace": trace,
        "table": lambda path: predict_table("vector_add", l4, path, folder / "out.csv"),
        "measurements of calibrate": lambda path: calibrate("vector_add", path, "l4"),
        "measurements of validate": read_file,
        "overlay": lambda path: device_model("l4", shipped_catalogue(), str(path)),
        "catalogue": catalogue,
        "kernel": lambda path: load(f"{path}:f"),
        "policy": policy,
    }


@pytest.mark.parametrize(
    ("what", "says"), [("pipe", "is a pipe"), ("device", "is a device"), ("folder", "is a folder"), ("large", "MiB")]
)
def test_a_file_that_is_none_or_is_too_large_is_refused_wherever_one_is_read(
    tmp_path: Path, what: str, says: str
) -> None:
    path = tmp_path / "given"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 2**31)  # without data: it takes no space

    def refuses(case: tuple[str, Callable[[Path], object]]) -> None:
        with pytest.raises(InputError, match=says) as caught:
            case[1](path)
        assert caught.value.exit_code == 2
        if what == "large":
            assert "has 2,048 MiB; expected at most" in str(caught.value)

    check_all(readers(tmp_path).items(), refuses)


def test_a_small_file_that_decompresses_to_a_large_one_is_refused(tmp_path: Path) -> None:
    import gzip

    content = gzip.compress(bytes(10_000))
    assert decompressed(content, tmp_path, "table", 10_000) == bytes(10_000)
    with pytest.raises(InputError, match="this table, decompressed, has more than 9,999 bytes"):
        decompressed(content, tmp_path, "table", 9_999)


# The code of a policy.

ENDLESS = '''
from __future__ import annotations
"""Not the docstring of the module."""

def choose(device):
    """The one with the fewest jobs; it does not end where there are several."""
    while device.jobs > 2:
        pass
    return device.jobs

def first(device):
    for _ in iter(int, 1):
        pass
    return 0

def bounded(device):
    total = 0
    for i in range(100):
        for j in range(100):
            total += i * j
    return device.jobs + 0 * total
'''


def own_policy(folder: Path, function: str, source: str = ENDLESS) -> Scenario:
    (folder / "mine.py").write_text(source)
    return scenario(poisson(4e6), folder=folder, policy=f"./mine.py:{function}", stop={"jobs": 50})


@pytest.mark.parametrize("engine", ["process", "compiled"])
def test_a_policy_whose_loop_does_not_end_is_an_error_of_its_file(tmp_path: Path, engine: str) -> None:
    with pytest.raises(InputError, match="the loop in line 7 does not end within 1,000,000 iterations") as caught:
        windtunnel.run(own_policy(tmp_path, "choose"), engine=engine)
    assert caught.value.where.file == str(tmp_path / "mine.py")
    windtunnel.run(own_policy(tmp_path, "bounded"), engine=engine)


def test_loops_of_the_file_and_of_the_first_answer_are_limited_too(tmp_path: Path) -> None:
    assert "the loop in line 12 does not end" in refused(own_policy(tmp_path, "first"))
    module = "import itertools\ntry:\n    for _ in itertools.count():\n        pass\nfinally:\n    done = 1\n"
    assert "the loop in line 3 does not end" in refused(own_policy(tmp_path, "f", module))
    inside = "class A:\n    while True:\n        continue\n"
    assert "the loop in line 2 does not end" in refused(own_policy(tmp_path, "f", inside))
    with pytest.raises(SyntaxError):
        compile_bounded(b"def f(:\n", "f.py")


def test_a_policy_that_sleeps_ends_at_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_LOADING_S", 0.05)
    # Also where it catches what it can.
    source = (
        "import time\ndef choose(device):\n    try:\n        time.sleep(3600)\n    except Exception:\n        pass\n"
    )
    began = time.monotonic()
    assert "to be loaded and to answer one example" in refused(own_policy(tmp_path, "choose", source))
    assert "this policy file takes more than" in refused(own_policy(tmp_path, "f", "import time\ntime.sleep(3600)\n"))
    assert time.monotonic() - began < 3600


def test_code_outside_of_the_scenario_s_folder_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    ran = tmp_path / "ran"
    (tmp_path / "other.py").write_text(
        f"open({str(ran)!r}, 'w').close()\ndef choose(device):\n    return device.jobs\n"
    )
    (inner / "link.py").symlink_to(tmp_path / "other.py")
    text = "{schema: 1, name: x, fleet: [{device: server}], stop: {jobs: 10}, policy: '%s', workload: [{name: w, %s}]}"
    job = "arrivals: {process: poisson, rate: 1 /s}, ops: [{service: {mean: 1 s}}]"
    for name in ("../other.py", str(tmp_path / "other.py"), "./link.py"):
        (inner / "s.yaml").write_text(text % (f"{name}:choose", job))
        with pytest.raises(InputError, match="outside the scenario's folder.*--allow-outside-code") as caught:
            windtunnel.run(inner / "s.yaml")
        assert caught.value.where.field == "policy" and not ran.exists()
        windtunnel.run(inner / "s.yaml", outside_code=True)
        assert ran.exists()
        ran.unlink()
