"""Fair queueing between tenants, preemption by class, and what a request keeps when its replica is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import memory_of
from tests.differential.serving_fuzz import MODEL

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED
from windtunnel.core.results.run import Serving
from windtunnel.core.results.use import TenantUse
from windtunnel.engine.results.serving import largest_gaps
from windtunnel.report.run_page import render
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run

RATES = {"a": 9000, "b": 9000, "c": 300}


def scenario(policy: dict[str, Any], count: int = 1, room: int = 2000, **changes: Any) -> dict[str, Any]:
    """Return three tenants on one replica: two ask for more than there is, and one for little."""
    work = [
        {
            "name": name,
            "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
            "ops": [{"generate": {"model": "small", "prompt": 40, "output": 20}}],
        }
        for name, rate in RATES.items()
    ]
    batch = {"kind": "continuous", "size": 8, "tokens": 64, "memory": 1.0}
    memory = memory_of(MODEL, room, 64, 8, 1.0)
    return {
        "schema": 1,
        "name": "tenants",
        "models": {"small": MODEL},
        "fleet": [{"device": "l4", "name": "d", "count": count, "calibration": "none", "memory": memory}],
        "workload": work,
        "policy": {"route": "central", "order": "arrival", "batch": batch, **policy},
        "stop": {"time": "100 ms"},
        **changes,
    }


def ran(data: dict[str, Any], engine: str = "process") -> tuple[Run, Serving]:
    run = windtunnel.run(scenario_from_data(data), engine=engine)
    assert run.result.serving is not None
    return run, run.result.serving


def tokens(serving: Serving) -> dict[str, int]:
    return {row.tenant: row.input_tokens + 2 * row.output_tokens for row in serving.tenants}


def test_tenants_that_ask_for_more_share_by_weight_and_others_get_what_they_ask_for() -> None:
    _, serving = ran(scenario({"fair": {"weights": {"a": 3}}}))
    served, by_name = tokens(serving), {row.tenant: row for row in serving.tenants}
    assert served["a"] / served["b"] == pytest.approx(3.0, rel=0.1)
    assert by_name["c"].arrived - by_name["c"].completed <= 2
    assert by_name["c"].weight == 1.0 and by_name["a"].weight == 3.0
    # Without fair shares the tenants have what they ask for, and all wait alike.
    _, plain = ran(scenario({}, workload=[{**w, "tenant": w["name"]} for w in scenario({})["workload"]]))
    served, unfair = tokens(plain), {row.tenant: row for row in plain.tenants}
    assert served["a"] / served["b"] == pytest.approx(1.0, rel=0.15)
    waits_s = [row.ttft_mean_s for row in (unfair["c"], by_name["c"])]
    assert waits_s[0] is not None and waits_s[1] is not None and waits_s[0] > 5 * waits_s[1]


def test_percentiles_of_tenants_are_those_of_their_requests() -> None:
    data = scenario({"fair": {}})
    run, serving = ran(data)
    jobs = run.recording.jobs
    for number, name in enumerate(w["name"] for w in data["workload"]):
        mine = (jobs.workload == number) & (jobs.first >= 0)
        (row,) = (row for row in serving.tenants if row.tenant == name)
        first_s = jobs.until_first(mine) / 1e12
        assert [row.ttft_p95_s, row.ttft_p99_s] == pytest.approx(np.quantile(first_s, [0.95, 0.99]).tolist())
        assert row.ttft_mean_s == pytest.approx(first_s.mean())
    page = render(run.result, run.recording)
    assert all(words in page for words in ("TTFT p95", "TTFT p99", "TTFT mean"))


def test_what_counts_is_the_tokens_and_not_the_requests() -> None:
    data = scenario({"fair": {}})
    data["workload"][0]["ops"][0]["generate"]["output"] = 80
    served = tokens(ran(data)[1])
    assert served["a"] / served["b"] == pytest.approx(1.0, rel=0.1)


def test_several_workloads_may_be_one_tenant_and_a_trace_may_name_them(tmp_path: Path) -> None:
    data = scenario({"fair": {}})
    data["workload"][1]["tenant"] = "a"
    assert {row.tenant for row in ran(data)[1].tenants} == {"a", "c"}
    rows = ["time_s,who,prompt", *(f"{i * 1e-5:.5f},{'eve' if i % 3 else 'zoe'},40" for i in range(900))]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    trace = {"process": "trace", "file": str(tmp_path / "rows.csv"), "format": "csv", "time": "time_s"}
    data = scenario({"fair": {"weights": {"zoe": 2}}}, stop={"time": "15 ms"})
    data["workload"] = [{**data["workload"][0], "arrivals": trace, "tenant": "$who"}]
    served = tokens(ran(data)[1])
    assert served["zoe"] / served["eve"] == pytest.approx(2.0, rel=0.2)


def test_both_engines_serve_tenants_alike_and_replications_add_up() -> None:
    data = scenario(
        {"route": "least-loaded", "order": "priority", "preemption": "resume", "fair": {"prompt": 2}}, count=2
    )
    data["workload"][2]["priority"] = 1
    one, other = ran(data)[1], ran(data, "compiled")[1]
    assert one.tenants == other.tenants and one.preemptions == other.preemptions > 0
    both = windtunnel.run(scenario_from_data(data), engine="process", replications=2).result.serving
    assert both is not None
    assert sum(row.arrived for row in both.tenants) > 1.5 * sum(row.arrived for row in one.tenants)
    assert all(isinstance(row, TenantUse) for row in both.tenants)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fair": {"weights": {"aa": 2}}}, "no workload has the tenant 'aa'"),
        ({"fair": {"prompt": 0, "output": 0}}, "tokens that count nothing"),
        ({"fair": {"weights": {"a": 0}}}, "weights"),
        ({"order": "shortest", "fair": {}}, "leaves nothing to share"),
        ({"preemption": "resume"}, "an order in which a later job can precede"),
        ({"order": "priority", "preemption": "restart"}, "keeps the tokens that it has delivered"),
    ],
)
def test_what_has_no_meaning_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ran(scenario(changes))


def test_a_tenant_that_no_trace_has_is_an_error() -> None:
    data = scenario({"fair": {}})
    data["workload"][0]["tenant"] = "$who"
    with pytest.raises(InputError, match=r"'\$who' requires a trace"):
        ran(data)


# Preemption by class.


def test_a_request_of_a_higher_priority_takes_the_place_of_the_youngest_of_the_lowest() -> None:
    classes = scenario({"order": "priority"})
    classes["workload"][2]["priority"] = 1
    run, waiting = ran(classes)
    classes["policy"]["preemption"] = "resume"
    again, preempting = ran(classes)
    gold, before = (
        next(part.serving for part in r.result.workloads if part.name == "c").ttft_s.mean.value for r in (again, run)
    )
    assert preempting.preemptions > 0 == waiting.preemptions
    assert gold < before / 2
    # It waits for the end of a step at most, and then reads its prompt.
    jobs = again.recording.jobs
    mine = (jobs.workload == 2) & (jobs.start >= 0)
    steps = again.recording.token_gaps.ticks.max()
    assert (jobs.start - jobs.arrival)[mine].max() <= steps
    # Nobody of its own class is preempted, and those that are deliver each token once.
    assert [part.serving.preemptions for part in again.result.workloads][2] == 0


# The loss of a replica.


@pytest.mark.parametrize("becomes", ["retry", "migrate"])
def test_tokens_that_were_delivered_are_not_delivered_again(becomes: str) -> None:
    data = scenario({"route": "least-loaded"}, count=2, stop={"jobs": 60})
    data["workload"] = data["workload"][:1]
    data["workload"][0]["arrivals"]["rate"] = "6000 /s"
    data["faults"] = [{"kind": "failure", "at": ["5 ms"], "duration": "2 ms", "on_failure": becomes}]
    data["fleet"] = [{**data["fleet"][0], "name": name, "count": 1} for name in ("d0", "d1")]
    data["faults"][0]["devices"] = ["d0"]
    run, _ = ran(data)
    jobs, gaps = run.recording.jobs, run.recording.token_gaps
    assert (jobs.status == COMPLETED).all()
    assert int(gaps.weights.sum()) == int((jobs.tokens - 1).sum())
    assert int((gaps.ticks * gaps.weights).sum()) == int((jobs.finish - jobs.first).sum())
    lost = np.flatnonzero(jobs.starts > 1)
    kept = lost[jobs.first[lost] < jobs.start[lost]]
    assert len(lost) > len(kept) > 0  # some had delivered nothing
    moved = jobs.device[lost] == 1
    assert moved.all() if becomes == "migrate" else not moved.any()
    # The gap that has the loss is the largest one of a request, found also where it moved.
    largest = largest_gaps(jobs, gaps, np.zeros(len(jobs)))
    for job in kept.tolist():
        own = gaps.ticks[gaps.of == job]
        assert own.size and largest[job] >= own.max()
        # Longer gaps are steps of a device that had it then.
        mine = (gaps.of == job) | ((gaps.of < 0) & (gaps.end > jobs.first[job]) & (gaps.end <= jobs.finish[job]))
        assert largest[job] in gaps.ticks[mine]


# Rate limits.


def limited(over: str, **more: Any) -> dict[str, Any]:
    """Return a tenant that may have 20 requests of 60 tokens in 10 ms, asks for more, and would be served at once."""
    data = scenario({}, count=1, stop={"jobs": 200})
    data["workload"] = [{**data["workload"][0], "rate_limit": {"tokens": 1200, "per": "10 ms", "over": over}, **more}]
    data["policy"]["batch"] |= {"size": 64, "tokens": 4096}
    data["fleet"][0]["memory"] = memory_of(MODEL, 9000, 4096, 64, 1.0)
    return data


@pytest.mark.parametrize("over", ["reject", "wait"])
def test_a_rate_limit_admits_what_a_bucket_of_tokens_does(over: str) -> None:
    run, serving = ran(limited(over))
    jobs = run.recording.jobs
    level, at, free = 1200.0, 0, 0
    for job in range(len(jobs)):
        arrival = int(jobs.arrival[job])
        if over == "wait":  # those before it go first
            free = max(free, arrival)
            level, at = min(level + (free - at) * 1.2e-7, 1200.0), free
            free = at + round(max(60.0 - level, 0.0) / 1.2e-7)
            level, at = level + (free - at) * 1.2e-7 - 60.0, free
            # It starts with the next step after it is admitted.
            assert free - 10 <= jobs.start[job] <= free + 2 * run.recording.token_gaps.ticks.max()
        else:
            level, at = min(level + (arrival - at) * 1.2e-7, 1200.0), arrival
            assert (jobs.start[job] >= 0) == (level >= 60.0 - 1e-6)
            level -= 60.0 * (level >= 60.0 - 1e-6)
    assert serving.rejected == (int((jobs.start < 0).sum()) if over == "reject" else 0)
    assert over == "wait" or serving.rejected > 50


def test_requests_that_a_rate_limit_holds_back_may_give_up_waiting() -> None:
    run, _ = ran(limited("wait", patience="3 ms"))
    jobs = run.recording.jobs
    counts = run.result.jobs
    assert counts.dropped > 50 and counts.completed + counts.dropped == counts.arrived == 200
    left = jobs.start < 0
    assert (jobs.finish - jobs.arrival)[left].tolist() == [3 * 10**9] * int(left.sum())


@pytest.mark.parametrize(
    ("limit", "message"),
    [({"tokens": 50}, "would never be admitted"), ({"tokens": 0}, "rate_limit"), ({"tokens": 99, "over": "x"}, "over")],
)
def test_a_rate_limit_that_admits_nothing_is_an_error(limit: dict[str, Any], message: str) -> None:
    data = limited("wait")
    data["workload"][0]["rate_limit"] = limit
    with pytest.raises(InputError, match=message):
        ran(data)
