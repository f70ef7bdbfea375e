"""The figures of one simulation as the page shows them: numbers for charts and differences, and their texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windtunnel.core.results.data import Result
from windtunnel.core.results.run import Estimate, Measured, ModelInput, TimeDistribution, distribution
from windtunnel.core.results.target import TargetVerdict
from windtunnel.core.units import parse_unit
from windtunnel.report.numbers import interval, is_finite, number, quantity, rate, share, usd
from windtunnel.report.run_text import METRICS
from windtunnel.report.serving import model_interval
from windtunnel.report.targets import TargetLine, overall_status, target_line, verdict

_OF_REQUESTS = ("ttft", "tpot", "itl", "e2e")
_OF_JOBS = ("latency", "waiting")
_SHOWN = ("p50", "p99")


@dataclass(frozen=True)
class Figure(Result):
    """One figure of a run.

    ``value`` is in SI units. ``chance`` is the 95% interval for chance in the traffic, ``model`` the 90% interval for
    the error of the device models; both are empty if there are none. ``better``: less, more, or empty.
    """

    name: str
    section: str
    label: str
    value: float | None
    text: str
    chance: str = ""
    model: str = ""
    better: str = ""


@dataclass(frozen=True)
class TargetFigure(Result):
    """A target with its value, as text. ``name`` is that of its figure, and ``limit_value`` its limit in SI units."""

    name: str
    limit_value: float
    text: str
    status: str
    label: str
    measured: str
    limit: str
    margin: str
    meter: float | None


@dataclass(frozen=True, kw_only=True)
class Seen(Result):
    """What one simulation shows.

    Attributes:
        jobs: The number of jobs that arrived.
        whole: Whether these are all jobs of the scenario.
        basis: What was simulated, in words.
        engine: The engine that simulated them.
        rate_per_s: The rate at which they arrived.
        figures: The figures in their order.
        status: How the verdict is coloured: none, met, missed or inconclusive.
        verdict: Whether the targets are met, in words.
        targets: The targets.
        notes: What a reader must know.
        inputs: How many numbers of the device models entered, and of which provenance.
    """

    jobs: int
    whole: bool
    basis: str
    engine: str
    rate_per_s: float | None
    figures: Sequence[Figure]
    status: str
    verdict: str
    targets: Sequence[TargetFigure]
    notes: Sequence[str] = ()
    inputs: str = ""
    key: str = field(default="", metadata={"json": "hidden"})
    """The machine code that the compiled engine needs for such a scenario."""

    def values(self) -> dict[str, float]:
        """Return the numbers by the names of the figures, without those that have none."""
        return {f.name: f.value for f in self.figures if f.value is not None and is_finite(f.value)}


def figures(run: Measured) -> list[Figure]:
    """Return the figures of a run."""
    return [*_times(run), *_throughput(run), *_use(run), *_cost(run)]


def targets_of(run: Measured) -> tuple[str, str, list[TargetFigure]]:
    """Return the colour of the verdict, the verdict, and the targets."""
    lines = [_target(target, target_line(target)) for target in run.targets]
    return overall_status(run.targets), verdict(run.targets), lines


def _target(target: TargetVerdict, line: TargetLine) -> TargetFigure:
    name = f"{target.metric} {target.statistic}" if target.workload is None else ""
    limit = target.limit * parse_unit(target.unit).factor
    return TargetFigure(
        name, limit, line.text, line.status, line.label, line.measured, line.bound, line.margin, line.meter
    )


def _times(run: Measured) -> Iterator[Figure]:
    serving = run.serving is not None
    for metric in _OF_REQUESTS if serving else _OF_JOBS:
        times = distribution(run, metric)
        stated = [target.statistic for target in run.targets if target.metric == metric]
        if times is None:
            continue
        for statistic in (s for s in ("mean", "p50", "p95", "p99") if s in _SHOWN or s in stated):
            yield _time(metric, statistic, times)


def _time(metric: str, statistic: str, times: TimeDistribution) -> Figure:
    estimate: Estimate = times.of(statistic)
    return Figure(
        f"{metric} {statistic}",
        "Times",
        f"{METRICS[metric]} {statistic}",
        estimate.value,
        quantity(estimate.value, "s"),
        interval(estimate),
        model_interval(estimate),
        "less",
    )


def _throughput(run: Measured) -> Iterator[Figure]:
    serving, section = run.serving, "Throughput"
    what = "requests" if serving is not None else "jobs"
    yield Figure(
        "throughput", section, f"Completed {what}", run.throughput_per_s, rate(run.throughput_per_s), better="more"
    )
    if serving is None:
        return
    tokens = serving.output_tokens_per_s
    yield Figure("tokens", section, "Output tokens", tokens, rate(tokens), better="more")
    if serving.slo_attainment is not None:
        text = share(serving.slo_attainment)
        yield Figure("attainment", section, "Requests within all limits", serving.slo_attainment, text, better="more")
    if serving.prefix_hit_rate is not None:
        hits = share(serving.prefix_hit_rate)
        yield Figure("hits", section, "Prefix cache hits", serving.prefix_hit_rate, hits, better="more")


def _use(run: Measured) -> Iterator[Figure]:
    section, serving = "Use and power", run.serving
    yield Figure("utilisation", section, "Utilisation", run.utilisation, share(run.utilisation))
    if serving is not None and serving.kv_peak is not None:
        yield Figure("kv", section, "KV cache, largest use", serving.kv_peak, share(serving.kv_peak))
        count = serving.preemptions
        yield Figure("preemptions", section, "Preemptions", float(count), number(count), better="less")
    power = run.average_power_w
    yield Figure("power", section, "Power, average", power, quantity(power, "W"), better="less")
    peak = run.peak_power_w
    yield Figure("peak", section, "Power, peak", peak, quantity(peak, "W"), better="less")
    energy = serving.energy_per_output_token_j if serving is not None else None
    if serving is None and run.jobs.completed:
        energy = run.energy_j / run.jobs.completed
    label = "Energy of an output token" if serving is not None else "Energy of a job"
    yield Figure("energy", section, label, energy, quantity(energy, "J"), better="less")


def _cost(run: Measured) -> Iterator[Figure]:
    section, hourly = "Cost", run.cost_usd_per_h
    known = "no price is stated" if hourly is None else usd(hourly)
    yield Figure("cost", section, "Rent of an hour", hourly, known, better="less")
    if hourly is None:
        return
    if run.serving is not None:
        million = run.serving.cost_per_million_usd.output
        yield Figure("million", section, "A million output tokens", million, usd(million), better="less")
    elif run.jobs.completed and run.cost_usd is not None:
        million = run.cost_usd / run.jobs.completed * 1e6
        yield Figure("million", section, "A million jobs", million, usd(million), better="less")


def inputs_text(inputs: Sequence[ModelInput]) -> str:
    """Return how many numbers of the device models entered a result, by their provenance."""
    order = ("measured", "published", "datasheet", "assumed")
    counts = {word: sum(row.provenance == word for row in inputs) for word in order}
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    return f"{len(inputs):,} numbers of the device models: {', '.join(parts)}" if parts else ""
