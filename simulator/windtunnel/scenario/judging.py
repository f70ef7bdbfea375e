"""Judges targets: the value in a result, its interval, and whether the target is met."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.core.results.run import Estimate, Measured, Timed, WorkloadResult, distribution
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.units import to_unit
from windtunnel.scenario.target import Target


def judge(target: Target, estimate: Estimate) -> TargetVerdict:
    """Return the verdict on a target whose value is ``estimate`` (SI): the numbers in its unit, and whether it is met.

    Without an interval or a value, the reason of ``estimate`` is given.
    """

    def in_unit(number: float | None) -> float | None:
        return None if number is None else to_unit(number, target.unit)

    return TargetVerdict(
        text=target.text,
        met=target.met_by(estimate.value),
        confidence=target.confidence(estimate.value, estimate.low, estimate.high),
        value=in_unit(estimate.value),
        low=in_unit(estimate.low),
        high=in_unit(estimate.high),
        reason=estimate.reason,
        metric=target.metric,
        statistic=target.statistic,
        workload=target.workload,
        comparison=target.comparison,
        limit=to_unit(target.limit, target.unit),
        unit=target.unit,
    )


def part_of(target: Target, result: Measured) -> Timed:
    """Return the part of a result that a target refers to: that of its workload, or the whole result."""
    if target.workload is None:
        return result
    return next(workload for workload in result.workloads if workload.name == target.workload)


def measured(target: Target, result: Measured) -> Estimate:
    """Return the value (SI) that a target refers to; it is None if nothing was measured."""
    if target.metric == "slo_attainment":
        serving = part_of(target, result).serving
        return Estimate(None) if serving is None else serving.attainment
    if not target.is_distributed:
        return Estimate(_number(target, result))
    times = distribution(part_of(target, result), target.metric)
    estimate = Estimate(None) if times is None else times.of(target.statistic)
    unstable = _unstable(target, result)
    return replace(estimate, reason=unstable) if estimate.value is None and unstable else estimate


def _unstable(target: Target, result: Measured) -> str | None:
    """Return why the times that a target refers to have no mean; None if they have."""
    part = part_of(target, result)
    if isinstance(part, WorkloadResult) and part.statistics.steady_state is not None:
        return part.statistics.unstable_reason
    return result.statistics.unstable_reason


# Long: one case for each metric.
def _number(target: Target, result: Measured) -> float | None:
    """Return the value (SI) of a metric without an interval; results state USD and kg per hour."""
    site, jobs = result.site, result.jobs
    match target.metric:
        case "throughput":
            return result.throughput_per_s
        case "power":
            return result.peak_power_w if target.statistic == "peak" else result.average_power_w
        case "energy":
            return result.energy_j
        case "cost":
            return _per_s(result.cost_usd_per_h)
        case "energy_cost":
            return None if site is None else _per_s(site.energy_cost_usd_per_h)
        case "total_cost":
            return None if site is None else _per_s(site.cost_usd_per_h)
        case "carbon":
            return None if site is None or site.carbon_kg_per_h is None else site.carbon_kg_per_h * 1e3 / 3600.0
        case "cost_per_million_output_tokens":
            return None if result.serving is None else result.serving.cost_per_million_usd.output
        case "availability":
            return result.availability
        case "utilisation":
            return result.utilisation
        case "completed":
            return jobs.completed / jobs.arrived if jobs.arrived else None
    raise AssertionError(f"a run has no metric '{target.metric}'")


def _per_s(hourly: float | None) -> float | None:
    return None if hourly is None else hourly / 3600.0
