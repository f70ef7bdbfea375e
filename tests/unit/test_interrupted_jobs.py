"""Checkpoints and preemption: times computed by hand, which job is interrupted, and errors. Both engines."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from tests.differential.comparison import assert_same, prepared
from tests.differential.fuzz import features, prepare_run_of
from tests.differential.fuzz import scenario as random_scenario

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import FAILED, Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import engine as process
from windtunnel.report.run_text import progress_lines
from windtunnel.scenario.read import scenario_from_data

SECOND = 10**12


def service(mean: str) -> list[Any]:
    return [{"service": {"distribution": "deterministic", "mean": mean}}]


def job(name: str, rows: str, mean: str, **more: Any) -> dict[str, Any]:
    """Return a workload whose first job arrives after ``rows``, the next ones as long after each other."""
    arrivals = {"process": "deterministic", "rate": f"{1 / float(rows)!r} /s"}
    return {"name": name, "arrivals": arrivals, "ops": service(mean), **more}


def scenario(*workload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "progress",
        "fleet": [{"device": "server"}],
        "workload": list(workload),
        "stop": {"jobs": 1},
        **more,
    }


def run(data: dict[str, Any]) -> Recording:
    """Return the recording, which is the same of both engines."""
    ready = prepared(data)
    one = process.run(ready)
    assert_same(one, compiled.run(ready))
    return one


CHECKPOINT = {"every": "1 s", "cost": "100 ms", "restore": "300 ms"}


def training(**failure: Any) -> dict[str, Any]:
    """Return one job of 4 s of work that arrives at 10 s."""
    faults = [{"kind": "failure", "max_attempts": 9, **failure}] if failure else []
    return scenario(job("training", "10", "4 s", checkpoint=CHECKPOINT), faults=faults)


def test_no_checkpoint_is_written_at_the_end() -> None:
    found = run(training())
    assert found.jobs.finish[0] == 10 * SECOND + 43 * SECOND // 10
    assert found.progress is not None and found.progress.checkpoints == 3


@pytest.mark.parametrize(
    ("at", "saved_s", "checkpoint_s"),
    [
        ("10.5 s", 0, 0.3),
        ("11.099999999999 s", 0, 0.3 + 0.099999999999),  # a tick before the checkpoint is complete
        ("11.1 s", 1, 0.3),
        ("13.0 s", 2, 0.3),
        ("14.25 s", 3, 0.3),
    ],
)
def test_an_interrupted_job_continues_from_its_last_complete_checkpoint(
    at: str, saved_s: int, checkpoint_s: float
) -> None:
    found = run(training(at=[at], duration="2 s"))
    failed_s = float(at.split()[0])
    rest_s = (4 - saved_s) + 0.1 * (3 - saved_s) + (0.3 if saved_s else 0)
    assert found.jobs.finish[0] == round((failed_s + 2 + rest_s) * SECOND)
    progress = found.progress
    assert progress is not None
    assert progress.checkpoint_ticks == round(checkpoint_s * SECOND)
    assert progress.restore_ticks == (0 if saved_s == 0 else 3 * SECOND // 10)
    work_s = failed_s - 10 - 0.1 * saved_s - (checkpoint_s - 0.3)
    assert progress.lost_ticks == round((work_s - saved_s) * SECOND)
    assert found.jobs.starts[0] == 2


def test_a_restore_that_is_interrupted_is_repeated() -> None:
    found = run(training(at=["12 s", "13.1 s"], duration="1 s"))
    # The first checkpoint was complete; the second failure strikes 0.1 s after the restart, in the restore.
    assert found.jobs.finish[0] == round((14.1 + 0.3 + 3 + 0.2) * SECOND)
    assert found.progress is not None and found.progress.restore_ticks == 4 * SECOND // 10


def test_another_class_counts_the_same_share_of_the_work_as_done() -> None:
    """4 s of work on a device of speed 1 are 2 s on one of speed 2."""
    data = training(devices=["slow"], at=["12.5 s"], on_failure="migrate")
    data["fleet"] = [{"device": "server", "name": "slow"}, {"device": "server", "name": "fast", "speed": 2}]
    data["faults"].append({"kind": "failure", "devices": ["fast"], "at": ["0 s"], "duration": "12.6 s"})
    found = run(data)
    # Two of four seconds were saved, so 1 s remains there, without another checkpoint.
    assert found.jobs.finish[0] == round((12.6 + 0.3 + 1) * SECOND)
    assert found.jobs.device[0] == 1


def test_throttling_slows_checkpoints_too() -> None:
    data = training(at=["18.2 s"], duration="1 s")
    data["faults"].append({"kind": "throttle", "at": ["0 s"], "duration": "18.2 s", "speed": 0.25})
    found = run(data)
    # After 8.2 s at a quarter of the speed 2.05 s have passed: 1 s, a checkpoint, and 0.95 s of work.
    assert found.progress is not None and found.progress.lost_ticks == 95 * SECOND // 100
    assert found.jobs.finish[0] == round((19.2 + 0.3 + 3 + 0.2) * SECOND)


def copies(fault: dict[str, Any], **more: Any) -> Recording:
    """Return a run of one program of two copies on a GPU, with a fault of operations."""
    copy = {"copy": {"bytes": 10_000_000_000, "direction": "h2d"}}
    data = scenario(job("copies", "1", "1 s"), fleet=[{"device": "h100-sxm-80gb"}], faults=[fault], **more)
    data["workload"][0] |= {"ops": [copy, copy], "checkpoint": {"every": "50 ms", "cost": "1 ms"}}
    return run(data)


def test_a_failed_operation_loses_the_work_since_the_last_checkpoint() -> None:
    normal = copies({"kind": "copy-failure", "after": "100 s"})
    failed = copies({"kind": "copy-failure", "call": 2, "times": 1, "max_attempts": 5})
    assert normal.progress is not None and failed.progress is not None
    assert normal.progress.lost_ticks == 0 and 0 < failed.progress.lost_ticks < 50 * SECOND // 1000
    more = int(failed.jobs.finish[0] - normal.jobs.finish[0])
    assert more == failed.progress.lost_ticks and failed.progress.checkpoints == normal.progress.checkpoints


def test_a_slowed_operation_makes_progress_in_proportion() -> None:
    slow = {"kind": "slow-copy", "call": 1, "times": 1, "factor": 10}
    one = copies(slow)
    assert one.progress is not None and one.progress.checkpoints == copies({**slow, "factor": 2}).progress.checkpoints  # type: ignore[union-attr]


# Preemption.


def urgent(*others: dict[str, Any], mode: str = "resume", **more: Any) -> dict[str, Any]:
    """Return a scenario of one urgent job of 1 s at 10 s, and jobs that are less urgent."""
    data = scenario(job("urgent", "10", "1 s", priority=5), *others, **more)
    return data | {"policy": {"name": "priority", "preemption": mode}, "stop": {"time": "19 s"}}


@pytest.mark.parametrize(("mode", "finish_s"), [("resume", 13), ("restart", 15)])
def test_an_interrupted_job_continues_or_starts_again(mode: str, finish_s: int) -> None:
    found = run(urgent(job("low", "8", "4 s"), mode=mode))
    jobs = found.jobs
    first = {int(w): i for i, w in reversed(list(enumerate(jobs.workload.tolist())))}
    assert jobs.finish[first[0]] == 11 * SECOND
    assert jobs.finish[first[1]] == finish_s * SECOND
    assert jobs.starts[first[1]] == 1 and found.progress is not None and found.progress.preemptions == 1
    assert found.returned == 0


def victim(low: list[dict[str, Any]], **more: Any) -> str:
    """Return the name of the only workload whose job does not run just after the urgent one came."""
    data = urgent(*low, **more)
    data["stop"] = {"time": "10.5 s"}
    found = run(data)
    (waiting,) = [int(work) for work in found.jobs.workload[found.jobs.start < 0]]
    return found.workloads[waiting]


def test_the_least_urgent_job_is_interrupted() -> None:
    low = [job("a", "7", "9 s", priority=2), job("b", "8", "9 s", priority=1), job("c", "9", "9 s", priority=3)]
    assert victim(low, fleet=[{"device": "server", "count": 3}]) == "b"


def test_among_equals_the_last_to_start_is_interrupted() -> None:
    low = [job("a", "7", "9 s"), job("b", "9", "9 s"), job("c", "8", "9 s")]
    assert victim(low, fleet=[{"device": "server", "count": 3}]) == "b"


def test_among_jobs_that_started_together_that_on_the_last_device_is_interrupted() -> None:
    low = [job("a", "9", "9 s"), job("b", "9", "9 s"), job("c", "9", "9 s")]
    assert victim(low, fleet=[{"device": "server", "count": 3}]) == "c"


def test_only_a_device_that_can_run_the_job_is_freed() -> None:
    low = [job("a", "7", "9 s", devices=["x"]), job("b", "8", "9 s", devices=["y"])]
    data = {"fleet": [{"device": "server", "name": "x"}, {"device": "server", "name": "y"}]}
    low_on_x = urgent(*low, **data)
    low_on_x["workload"][0]["devices"] = ["x"]
    low_on_x["stop"] = {"time": "10.5 s"}
    found = run(low_on_x)
    assert [found.workloads[w] for w in found.jobs.workload[found.jobs.start < 0]] == ["a"]


def test_an_equal_job_is_not_interrupted() -> None:
    found = run(urgent(job("low", "8", "4 s", priority=5)))
    assert found.progress is not None and found.progress.preemptions == 0


def test_a_job_that_ends_at_the_tick_is_not_interrupted() -> None:
    found = run(urgent(job("low", "8", "2 s")))
    assert found.progress is not None and found.progress.preemptions == 0
    assert found.jobs.finish[found.jobs.workload == 1][0] == 10 * SECOND


def test_a_job_on_an_unreachable_device_is_not_interrupted_until_the_link_returns() -> None:
    link = {"kind": "link-loss", "at": ["9 s"], "duration": "2 s"}
    found = run(urgent(job("low", "8", "4 s"), faults=[link]))
    assert found.jobs.start[found.jobs.workload == 0][0] == 11 * SECOND


def test_a_job_that_returns_after_a_failure_interrupts_another() -> None:
    data = urgent(job("low", "8", "9 s", devices=["y"]), fleet=[{"device": "server", "name": n} for n in "xy"])
    data["faults"] = [{"kind": "failure", "devices": ["x"], "at": ["10.5 s"]}]
    found = run(data)
    assert found.jobs.finish[found.jobs.workload == 0][0] == round(11.5 * SECOND)
    assert found.jobs.device[found.jobs.workload == 0][0] == 1


def test_the_interrupted_job_starts_at_once_on_an_idle_device_that_only_it_may_use() -> None:
    data = urgent(job("low", "8", "9 s"), fleet=[{"device": "server", "name": n} for n in "xy"])
    data["workload"][0]["devices"] = ["x"]
    data["stop"] = {"time": "10.5 s"}
    found = run(data)
    low = found.jobs.workload == 1
    assert (found.jobs.start[low][0], found.jobs.device[low][0]) == (10 * SECOND, 1)


def test_preemptions_do_not_count_as_attempts() -> None:
    data = urgent(job("low", "9", "50 s"), mode="resume")
    data["workload"][0] |= {"arrivals": {"process": "deterministic", "rate": "1 /s"}, "ops": service("100 ms")}
    data["faults"] = [{"kind": "failure", "at": ["15.5 s", "17.5 s"], "duration": "1 ms", "max_attempts": 2}]
    data["stop"] = {"time": "17.2 s"}
    found = run(data)
    low = found.jobs.workload == 1
    assert found.progress is not None and found.progress.preemptions > 5 and found.jobs.starts[low][0] == 2
    data["stop"] = {"time": "18 s"}
    found = run(data)
    assert found.jobs.status[low[: len(found.jobs)].nonzero()[0][0]] == FAILED


def test_what_a_preemption_keeps_is_lost_with_the_device() -> None:
    data = urgent(job("low", "8", "4 s"), faults=[{"kind": "failure", "at": ["12 s"], "duration": "1 s"}])
    found = run(data)
    # 2 s before the preemption and 1 s after it are lost.
    assert found.progress is not None and found.progress.lost_ticks == 3 * SECOND
    assert found.jobs.finish[found.jobs.workload == 1][0] == 17 * SECOND


def test_a_job_does_not_interrupt_another_if_the_power_budget_would_not_let_it_start() -> None:
    fleet = [
        {"device": "server", "name": "small", "power": {"idle": "0 W", "max": "50 W"}},
        {"device": "server", "name": "large", "power": {"idle": "0 W", "max": "100 W"}},
    ]
    low = [job("a", "7", "9 s", devices=["small"]), job("b", "8", "9 s", devices=["large"])]
    data = urgent(*low, fleet=fleet, power_budget="150 W")
    data["faults"] = [{"kind": "brown-out", "at": ["9 s"], "duration": "5 s", "budget": "100 W"}]
    found = run(data)
    # The job on the large device is paused, and nothing starts before it continues.
    assert found.jobs.start[found.jobs.workload == 0][0] == 14 * SECOND
    assert found.jobs.device[found.jobs.workload == 0][0] == 1
    assert found.progress is not None and found.progress.preemptions == 1


# Laws of random scenarios.


class Watched(process._Run):  # noqa: SLF001
    """A run of the process engine that is checked after each event."""

    found = 0

    def _consequences(self) -> None:
        super()._consequences()
        w: Any = self.world
        r = w.run[0]
        for number, queue in enumerate(w.queues):
            if queue.head < 0:
                continue
            waiting = w.slots[queue.head]
            for device, d in enumerate(w.devices):
                if r.routed and device != number:
                    continue
                at = r.signature_at + waiting.signature
                able = [w.ints[r.signature_classes + p] for p in range(w.ints[at], w.ints[at + 1])]
                up = d.outages == 0 and d.linked and d.enlisted
                if d.slot < 0 or d.held or not up or d.cls not in able:
                    continue
                ends = self.clock._ends[device]
                if ends is None or ends > r.now:
                    assert waiting.key >= w.slots[d.slot].key, "a more urgent job waits"
                    Watched.found += 1


def test_no_job_waits_while_one_that_comes_after_it_runs_on_a_device_that_can_run_it() -> None:
    seen = 0
    for seed in range(250):
        data, rows = random_scenario(seed)
        present = features(data)
        if "preemption" not in present or present & {"power budget"}:
            continue
        if any(fault["kind"] == "brown-out" for fault in data["faults"]):
            continue
        seen += 1
        Watched(prepare_run_of(data, rows), None).execute()
        if seen == 10:
            break
    assert seen == 10 and Watched.found > 500


# Results and errors.


def test_the_result_and_the_report_state_what_interruptions_cost() -> None:
    result = windtunnel.run(scenario_from_data(training(at=["12.5 s"], duration="1 s"))).result
    written = json.loads(json.dumps(result.to_dict()))["progress"]
    assert written["checkpoints"] == 3 and written["preemptions"] == 0
    assert math.isclose(written["lost_s"], 0.3) and math.isclose(written["restore_s"], 0.3)
    assert math.isclose(written["checkpoint_s"], 0.3)
    assert progress_lines(result) == [
        "3 checkpoints in 300 ms of device time, restores 300 ms",
        "0 preemptions; 300 ms of work lost",
    ]


def test_a_result_without_the_feature_has_no_such_key() -> None:
    result = windtunnel.run(scenario_from_data(scenario(job("low", "8", "4 s")))).result
    assert "progress" not in result.to_dict() and progress_lines(result) == []


def test_replications_are_added() -> None:
    data = training(mtbf="5 s", mttr="1 s")
    one, two = (windtunnel.run(scenario_from_data(data), replications=n).result.progress for n in (1, 2))
    assert one is not None and two is not None and two.checkpoints >= one.checkpoints + 3


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"checkpoint": {"every": "0 s", "cost": "1 s"}}, "checkpoint.every", "more than zero"),
        ({"checkpoint": {"every": "1 s"}}, "checkpoint.cost", "missing"),
        ({"checkpoint": {"every": "1 s", "cost": "-1 s"}}, "checkpoint.cost", "negative"),
        ({"policy": {"name": "priority", "preemption": "often"}}, "policy.preemption", "resume"),
        ({"policy": {"name": "fifo", "preemption": "resume"}}, "policy.preemption", "order: priority"),
    ],
)
def test_wrong_values_are_errors_with_their_place(change: dict[str, Any], field: str, words: str) -> None:
    data = scenario(job("low", "8", "4 s"))
    if "checkpoint" in change:
        data["workload"][0] |= change
    else:
        data |= change
    with pytest.raises(InputError) as caught:
        prepared(data)
    text = str(caught.value)
    assert field.rpartition(".")[2] in text and words in text


def test_a_run_that_keeps_only_sums_has_the_same_progress() -> None:
    low = {**job("low", "1", "1 s"), "arrivals": {"process": "poisson", "rate": "0.5 /s"}, "checkpoint": CHECKPOINT}
    high = {**job("high", "1", "300 ms", priority=1), "arrivals": {"process": "poisson", "rate": "0.6 /s"}}
    low["ops"] = service("1.2 s")
    fault = {"kind": "failure", "mtbf": "20 s", "mttr": "1 s", "max_attempts": 100}
    data = scenario(low, high, policy={"name": "priority", "preemption": "restart"}, faults=[fault])
    data["stop"] = {"jobs": 5_000}
    kept = windtunnel.run(scenario_from_data(data), engine="compiled").result
    sums = windtunnel.run(scenario_from_data({**data, "records": "sample"}), engine="compiled").result
    assert any("percentiles come from a sketch" in note for note in sums.notes)
    assert kept.progress is not None and kept.progress.preemptions > 500 and kept.progress.checkpoints > 1_000
    assert kept.progress == sums.progress and kept.jobs == sums.jobs
    assert kept.faults is not None and sums.faults is not None and kept.faults.restarts == sums.faults.restarts
