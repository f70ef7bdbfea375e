"""The terminal summary is short, aligned and plain, and shows a dash for every missing value."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from windtunnel.core.results.faults import FaultCount, FaultResult
from windtunnel.core.results.run import (
    BudgetResult,
    BudgetSeries,
    DeviceResult,
    Estimate,
    JobCounts,
    ModelInput,
    PowerError,
    RunResult,
    RunStatistics,
    Serving,
    Stopped,
    TimeDistribution,
)
from windtunnel.core.results.target import TargetVerdict
from windtunnel.planning.evaluation import headroom as headroom_of
from windtunnel.report import numbers, targets
from windtunnel.report.summary import summary


def times(scale: float | None) -> TimeDistribution:
    if scale is None:
        return TimeDistribution(*[Estimate(None)] * 4)
    return TimeDistribution(
        mean=Estimate(scale, 0.9 * scale, 1.1 * scale),
        p50=Estimate(0.8 * scale),
        p95=Estimate(2 * scale),
        p99=Estimate(3 * scale, 2.75 * scale, 3.25 * scale),
    )


def target(
    text: str, value: float | None, limit: float, met: bool, unit: str = "s", comparison: str = "<="
) -> TargetVerdict:
    return TargetVerdict(
        text=text,
        met=met,
        confidence="conclusive",
        value=value,
        low=None,
        high=None,
        reason=None,
        metric=text.split()[0],
        statistic=None,
        workload=None,
        comparison=comparison,
        limit=limit,
        unit=unit,
    )


def device(name: str, sku: str, utilisation: float, entry: str = "", jobs: int = 10) -> DeviceResult:
    return DeviceResult(
        name=name,
        sku=sku,
        entry=entry or sku,
        kind="gpu",
        utilisation=utilisation,
        rented_s=1800.0,
        energy_j=1000.0,
        jobs=jobs,
        power_limit_w=350.0,
        idle_power_w=35.0,
        availability=1.0,
    )


def model_input(provenance: str) -> ModelInput:
    return ModelInput("l40s", "idle_power_w", 35.0, "W", provenance, None, None, None, None)


STATISTICS = RunStatistics(
    method="",
    stationary=False,
    warmup_jobs=0,
    warmup_reason="",
    steady_state=None,
    steady_state_reason=None,
    offered_load=None,
    missing_interval_reasons={},
)
RESULT = RunResult(
    name="evening",
    description=None,
    engine="process",
    engine_reason="",
    seed=7,
    replications=1,
    policy="fifo",
    simulated_s=1800.0,
    jobs=JobCounts(arrived=12_000, completed=11_990, dropped=4, failed=0, running=6, queued=0),
    latency_s=times(0.005),
    waiting_s=times(0.0012),
    serving=None,
    statistics=STATISTICS,
    throughput_per_s=11_990 / 1800,
    workloads=[],
    devices=[device("a", "l40s", 0.5), device("b", "l40s", 0.7), device("c", "h100-sxm-80gb", 0.995)],
    faults=None,
    autoscale=[],
    utilisation=0.7,
    availability=1.0,
    energy_j=7.2e6,
    average_power_w=4000.0,
    peak_power_w=5120.0,
    power_limit_w=6400.0,
    power_budget=None,
    cost_usd=12.5,
    cost_usd_per_h=25.0,
    total_cost_usd=None,
    site=None,
    targets=[
        target("latency p99 <= 20 ms", 0.015, 0.02, True),
        target("waiting p99 <= 3 ms", 0.0036, 0.003, False),
        target("throughput >= 5 /s", 6.66, 5.0, True, "/s", ">="),
    ],
    provenance=[model_input(word) for word in ("assumed", "datasheet", "measured")],
    contexts=[],
    model_accuracy=[],
    notes=["memory ran out twice"],
    scenario={},
    versions={},
)


def changed(**changes: Any) -> RunResult:
    return replace(RESULT, **changes)


def test_the_whole_answer() -> None:
    assert summary(RESULT) == (
        "1 of 3 targets missed\n"
        "  met      latency p99 ≤ 20 ms   15.0 ms   headroom 25.0%\n"
        "  MISSED   waiting p99 ≤ 3 ms    3.60 ms   20.0% beyond the limit\n"
        "  met      throughput ≥ 5 /s     6.66 /s   headroom 33.2%\n"
        "next           waiting p99 ≤ 3 ms: devices are busy 99.5% of the time: add some (fleet[1].count)\n"
        "               `windtunnel plan` finds the cheapest fleet that meets the targets\n"
        "\n"
        "evening: 12,000 jobs over 30 min on 3 devices of 2 SKUs, seed 7, process engine\n"
        "\n"
        "jobs           11,990 of 12,000 completed, 6 running, 4 dropped\n"
        "throughput     6.66 jobs/s\n"
        "                  mean       p50       p95       p99   95% CI of mean    95% CI of p99\n"
        "latency        5.00 ms   4.00 ms   10.0 ms   15.0 ms   4.50 to 5.50 ms   13.8 to 16.2 ms\n"
        "waiting        1.20 ms    960 µs   2.40 ms   3.60 ms   1.08 to 1.32 ms   3.30 to 3.90 ms\n"
        "utilisation    l40s           2 ×  60.0%  (50.0% to 70.0% per device)\n"
        "               h100-sxm-80gb  1 ×  99.5%\n"
        "power          4.00 kW average, 5.12 kW peak, device limit 6.40 kW\n"
        "energy         7.20 MJ (2.00 kWh), 601 J per job\n"
        "cost           12.50 USD, 25.00 USD per hour, 1,042.54 USD per million jobs\n"
        "inputs         1 of 3 model inputs are assumed\n"
        "note           memory ran out twice\n"
    )


FAULTS = FaultResult(
    events={"down": 3, "unreachable": 1, "throttled": 2, "brown-out": 0},
    stragglers=1_200,
    interrupted=1,
    restarts=1,
    failed=0,
    corrupted_jobs=None,
    entries=[],
    by_fault=[],
)


def test_what_went_wrong_and_what_became_of_the_jobs() -> None:
    lines = summary(changed(faults=FAULTS, availability=0.9712)).splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("faults ")]
    assert lines[at] == "faults         3 failures, 1 link loss, 2 throttlings, 1,200 stragglers"
    assert lines[at + 1] == "               availability 97.1%; 1 job interrupted: 1 retried, 0 failed"
    nothing = replace(FAULTS, events=dict.fromkeys(FAULTS.events, 0), stragglers=None, interrupted=0)
    assert "faults         no fault occurred\n" in summary(changed(faults=nothing, availability=1.0))
    assert "availability" not in summary(changed(faults=nothing, availability=1.0))
    assert "faults" not in summary(changed(faults=None))


def test_faults_of_operations_are_counted_by_kind_and_unused_faults_are_named() -> None:
    stated = [
        FaultCount("failure", 3, None),
        FaultCount("ecc", 2, 500),
        FaultCount("ecc", 1, 1_500),
        FaultCount("hang", 0, 1_500),
        FaultCount("throttle", 0, None),
        FaultCount("straggler", None, None),
    ]
    text = summary(changed(faults=replace(FAULTS, by_fault=stated, corrupted_jobs=7), availability=0.9712))
    assert "1,200 stragglers, 3 ecc\n" in text
    assert "7 jobs completed with silently corrupted data\n" in text
    assert "faults[3] (hang) never occurred; 1,500 operations were eligible\n" in text
    assert "faults[4] (throttle) never occurred\n" in text


def test_it_is_plain_text_that_fits_a_terminal() -> None:
    text = summary(changed(notes=["x y " * 80], name="\x1b[31mred\x1b[0m\nsecond line\r"))
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.splitlines()[7].startswith(" [31mred [0m second line")
    assert all(len(line) <= 120 for line in text.splitlines())
    assert all(line == line.rstrip() for line in text.splitlines())


def test_tokens_have_their_lines_where_there_are_any() -> None:
    text = summary(changed(serving=Serving(ttft_s=times(0.1), itl_s=times(0.02), output_tokens_per_s=1234.0)))
    assert "1,234 tokens/s" in text
    lines = {line[:11]: line for line in text.splitlines()}
    assert lines["TTFT       "].split()[1:3] == ["100", "ms"]
    assert lines["ITL        "].split()[1:3] == ["20.0", "ms"]
    # One column, one right edge, whatever the metric.
    assert len({line.index(" ms   ") for name, line in lines.items() if name in ("latency    ", "TTFT       ")}) == 1
    assert "token" not in summary(RESULT)


def test_what_is_not_known_is_a_dash() -> None:
    nothing = JobCounts(arrived=3, completed=0, dropped=0, failed=0, running=0, queued=3)
    text = summary(
        changed(
            jobs=nothing,
            latency_s=times(None),
            waiting_s=times(None),
            throughput_per_s=0.0,
            cost_usd=None,
            cost_usd_per_h=None,
            power_limit_w=0.0,
            targets=[target("latency p99 <= 20 ms", None, 0.02, False)],
            provenance=[],
            notes=[],
        )
    )
    assert "The target is missed" in text
    assert "nothing measured" in text
    assert "unknown (a device has no price)" in text
    assert "per job" not in text
    assert "nan" not in text.lower()
    assert "none" not in text.lower()


def test_replications_do_not_inflate_what_a_job_costs() -> None:
    # Over replications job counts are sums, energy and cost means: a job must still cost the same.
    jobs = JobCounts(**{name: 4 * count for name, count in vars(RESULT.jobs).items()})
    text = summary(changed(jobs=jobs, replications=4))
    assert "601 J per job" in text
    assert "1,042.54 USD per million jobs" in text
    assert "over 4 × 30 min" in text


def test_many_entries_are_cut_with_a_count() -> None:
    text = summary(changed(devices=[device(f"d{i}", f"sku-{i}", 0.5) for i in range(20)]))
    assert "and 14 more entries" in text


@pytest.mark.parametrize(
    ("outcomes", "line"),
    [
        ([], "No targets were set"),
        ([True], "The target is met"),
        ([False], "The target is missed"),
        ([True, True], "Both targets met"),
        ([False, False], "Both targets missed"),
        ([True, False, False], "2 of 3 targets missed"),
    ],
)
def test_the_verdict_in_one_line(outcomes: list[bool], line: str) -> None:
    assert targets.verdict([target("throughput >= 5 /s", 6.0, 5.0, met) for met in outcomes]) == line


def test_numbers_as_people_write_them() -> None:
    cases = [
        (numbers.quantity(0.0153, "s"), "15.3 ms"),
        (numbers.quantity(None, "s"), "–"),
        (numbers.quantity(float("nan"), "W"), "–"),
        (numbers.quantity(1.98e9, "MHz"), "1,980 MHz"),
        (numbers.exact_quantity(15.0, "s"), "15 s"),
        (numbers.exact_quantity(0.25, "%"), "25%"),
        (numbers.quantity(0.92, "%"), "92.0%"),
        (numbers.quantity(0.924, "%"), "92.4%"),
        (numbers.quantity(570.0, "s"), "9.50 min"),
        (numbers.quantity(599.9, "s"), "10.0 min"),
        (numbers.quantity(1997.4, "/s"), "1,997 /s"),
        (numbers.exact_quantity(200.0, "W"), "200 W"),
        (numbers.quantity_in_unit(2.5, "USD/h"), "2.50 USD/h"),
        (numbers.quantity_in_unit(1980.0, "MHz"), "1,980 MHz"),
        (numbers.quantity_in_unit(3.0, "furlongs"), "3 furlongs"),
        (numbers.exact_range(3.2e-6, 6e-6, "s"), "3.2 to 6 µs"),
        (numbers.value_range(0.0009, 0.0011, "s"), "900 µs to 1.10 ms"),
        (numbers.value_range(0.015, 0.015, "s"), "15.0 ms"),
        (numbers.value_range(None, 1.0, "s"), ""),
        (numbers.number(12345.6), "12,346"),
        (numbers.number(1e-9), "1e-09"),
        (numbers.number(0.25), "0.25"),
        (numbers.share(0.0), "0%"),
        (numbers.share(0.0004), "0.04%"),
        (numbers.share(0.00001), "<0.01%"),
        (numbers.share(0.0755), "7.5%"),
        (numbers.share(0.9999), "100%"),
        (numbers.usd(0.00123), "0.00123 USD"),
        (numbers.usd(1234.5), "1,234.50 USD"),
        (numbers.watt_hours(3.6e6), "1.00 kWh"),
        (numbers.rate(None), "–"),
        (numbers.plural(1, "job"), "1 job"),
    ]
    assert [text for text, _ in cases] == [expected for _, expected in cases]


def test_how_far_from_the_limit() -> None:
    for value, limit, met, margin in (
        (0.01, 0.02, True, "headroom 50.0%"),
        (0.03, 0.02, False, "50.0% beyond the limit"),
        (0.02, 0.02, True, "on the limit"),
        (0.5, 0.02, False, "25 times the limit"),
        (None, 0.02, False, ""),
        (0.5, 0.0, False, ""),
    ):
        assert targets.target_line(target("latency p99 <= x", value, limit, met)).margin == margin, (value, limit)
    # As in a plan, it is measured from the worse bound of the interval.
    known = {"confidence": "conclusive", "value": 0.4, "low": 0.3, "high": 0.9, "limit": 1.0, "met": True}
    for comparison, limit, headroom in (("<=", 1.0, "10.0%"), (">=", 0.25, "20.0%")):
        one = replace(
            target("latency p99 <= 1 s", 0.4, 1.0, True), **known | {"comparison": comparison, "limit": limit}
        )
        assert targets.target_line(one).margin == f"headroom {headroom}"
        share = headroom_of(one.low if comparison == ">=" else one.high, limit, comparison)
        assert share is not None and f"{share:.1%}" == headroom


def judged(confidence: str, met: bool, comparison: str = "<=", **more: Any) -> TargetVerdict:
    one = target(f"latency p99 {comparison} 1 s", 0.5 if met == (comparison == "<=") else 2.0, 1.0, met)
    return replace(one, **{"comparison": comparison, "low": 0.25, "high": 6.0, "confidence": confidence} | more)


@pytest.mark.parametrize(
    ("met", "comparison", "label", "bound"),
    [
        (True, "<=", "met (inconclusive)", "95% CI upper bound 6.00 s"),
        (False, "<=", "MISSED (inconclusive)", "95% CI lower bound 250 ms"),
        (True, ">=", "met (inconclusive)", "95% CI lower bound 250 ms"),
        (False, ">=", "MISSED (inconclusive)", "95% CI upper bound 6.00 s"),
    ],
)
def test_an_inconclusive_target_shows_the_bound_beyond_the_limit(
    met: bool, comparison: str, label: str, bound: str
) -> None:
    inconclusive = judged("inconclusive", met, comparison)
    line = targets.target_line(inconclusive)
    assert (line.margin, line.status) == (bound, "inconclusive")
    text = summary(changed(targets=[inconclusive, judged("conclusive", True)]))
    verdict = "Both targets met" if met else "1 of 2 targets missed"
    assert text.startswith(f"{verdict}; 1 inconclusive at 95%\n  {label}   ")
    assert targets.verdict([inconclusive]) == f"The target is {'met' if met else 'missed'}; inconclusive at 95%"
    assert targets.target_line(judged("conclusive", met, comparison)).doubt == ""


def test_a_time_without_an_interval_says_so_and_a_rate_does_not() -> None:
    time, rate = judged("no interval", True), judged("no interval", True, metric="throughput")
    line = targets.target_line(time)
    assert (line.label, line.status, line.margin) == ("met (no interval)", "inconclusive", "headroom 50.0%")
    assert (targets.target_line(rate).label, targets.target_line(rate).status) == ("met", "met")
    assert targets.verdict([time, rate]) == "Both targets met; 1 without a confidence interval"
    assert targets.verdict([rate, rate]) == "Both targets met"


UNSTABLE = replace(
    STATISTICS,
    stationary=True,
    steady_state="unstable",
    steady_state_reason="1.01 times as much work arrives",
    offered_load=1.01,
)


def test_a_met_target_whose_model_error_reaches_beyond_its_limit_may_be_missed_and_is_still_met() -> None:
    met = replace(target("ttft p99 <= 1 s", 0.43, 1.0, True), model_low=0.14, model_high=1.27)
    within = replace(met, model_high=0.99)
    line = targets.target_line(met)
    assert (line.status, line.mark, line.label) == ("may-be-missed", "!", "met (may be missed)")
    assert line.margin == "headroom 57.0%, model error 140 ms to 1.27 s"
    assert targets.verdict([met, within]) == "Both targets met; within the error of the models 1 may be missed"
    assert targets.verdict([met]) == "The target is met; within the error of the models it may be missed"
    assert targets.overall_status([met, within]) == "may-be-missed" and met.met, "exit codes do not change"
    assert targets.target_line(within).status == targets.overall_status([within]) == "met"
    # No upper end, a target from below, one that is missed anyway, and one that chance leaves open.
    assert targets.target_line(replace(met, model_high=None)).margin.endswith("model error 140 ms or more")
    assert replace(met, comparison=">=", limit=0.1).may_be_missed is False
    assert targets.target_line(replace(met, met=False, value=1.1)).status == "missed"
    open_ = targets.target_line(replace(met, confidence="inconclusive", low=0.3, high=1.1))
    assert (open_.status, open_.label) == ("inconclusive", "met (inconclusive)")


def test_the_states_of_targets_have_the_same_signs_in_scripts_and_a_colour_in_every_page() -> None:
    folder = resources.files("windtunnel.report") / "templates"
    common, css = ((folder / name).read_text(encoding="utf-8") for name in ("common.js", "report.css"))
    (marks,) = re.findall(r"const marks = \{(.*?)\};", common)
    assert dict(re.findall(r'"?([\w-]+)"?: "(.)"', marks)) == targets.MARKS
    (tones,) = re.findall(r"const tones = \{(.*?)\};", common)
    assert {key for key, _ in re.findall(r'"?([\w-]+)"?: "(\w+)"', tones)} == set(targets.MARKS)
    for state in targets.MARKS.keys() - {targets.NO_TARGETS}:
        assert f".answer.{state}" in css and (state == "met" or f".targets li.{state}" in css)


def test_an_unstable_run_says_so_in_place_of_its_times_and_only_there() -> None:
    text = summary(
        changed(
            latency_s=times(None),
            waiting_s=times(None),
            statistics=UNSTABLE,
            targets=[judged("no interval", False, value=None, reason="unstable: 1.01 times as much work arrives")],
            notes=["unstable: 1.01 times as much work arrives; no average is given"],
        )
    )
    assert "  MISSED   latency p99 ≤ 1 s   –   unstable: 1.01 times as much work arrives\n" in text
    assert "latency        unstable: 1.01 times as much work arrives\n" in text
    assert "waiting        unstable: 1.01 times as much work arrives\n" in text
    assert "no average is given" not in text
    assert "nothing measured" not in text


def test_what_the_intervals_rest_on_is_said() -> None:
    short = "the run is too short (effective sample size about {}, at least 2 needed)"
    statistics = replace(
        STATISTICS,
        steady_state="not shown",
        offered_load=0.8,
        stopped=Stopped("latency mean", requested_error=0.02, achieved_error=0.013, jobs=40_000, attempts=2),
    )
    latency = replace(
        times(0.005), p50=Estimate(0.004), p95=Estimate(0.01), p99=Estimate(0.015, reason=short.format("1.5"))
    )
    waiting = replace(latency, p95=Estimate(0.0024, reason=short.format("1.0")), p99=Estimate(0.0036, reason="too few"))
    text = summary(changed(statistics=statistics, latency_s=latency, waiting_s=waiting))
    assert "steady state   not shown; offered load 0.8\n" in text
    assert "precision      latency mean: error 1.3% after 40,000 jobs (2% requested)\n" in text
    # Long lines are wrapped.
    unwrapped = " ".join(text.split())
    assert f" no 95% CI latency p99, waiting p95: {short.format('1.0 to 1.5')} waiting p99: too few " in unwrapped


BUDGET = BudgetResult(
    normal_w=5000.0,
    min_w=3000.0,
    max_active_devices=2,
    series=BudgetSeries([0.0, 60.0, 120.0], [5000.0, 3000.0, 5000.0], downsampled=False),
)


def test_a_budget_is_the_limit_that_is_shown_and_why_devices_never_started() -> None:
    idle = device("d", "l40s", 0.0, jobs=0)
    text = summary(changed(power_budget=BUDGET, devices=[*RESULT.devices[:2], idle, idle]))
    assert "power          4.00 kW average, 5.12 kW peak\n" in text
    assert "               power budget 5 kW, 3 kW in a brown-out; device limit 6.40 kW\n" in text
    assert "               2 of 4 devices never ran a job: the power budget allows 2 active devices\n" in text
    known = summary(changed(power_error=[PowerError("l40s", 1.5, "assumed")]))
    assert (
        "4.00 kW average, 5.12 kW peak, device limit 6.40 kW\n               model error: 90% of the powers of" in known
    )
    # If fewer devices are active than the budget allows, the budget is not the cause of the idle ones.
    assert "never ran" not in summary(
        changed(power_budget=replace(BUDGET, max_active_devices=3), devices=[device("a", "l4", 0.5), idle])
    )
    assert "never ran" not in summary(changed(devices=[device("a", "l4", 0.5), idle]))


def test_entries_of_one_sku_are_told_apart() -> None:
    old, new = (device(name, "server", used, entry=name) for name, used in (("old", 0.1), ("new", 0.9)))
    text = summary(changed(devices=[old, old, new]))
    assert "utilisation    old (server)  2 ×  10.0%  (10.0% to 10.0% per device)\n" in text
    assert "               new (server)  1 ×  90.0%\n" in text
