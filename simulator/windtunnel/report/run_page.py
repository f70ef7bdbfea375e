"""The HTML report of a run: the verdict first, and at the end where every input came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from windtunnel.core.recording import Recording
from windtunnel.core.results.run import DeviceResult, RunResult
from windtunnel.report import page, run_inputs, run_tables, run_text, serving, serving_section
from windtunnel.report.charts import Chart, charts
from windtunnel.report.next_steps import next_steps
from windtunnel.report.numbers import (
    NOTHING,
    exact_quantity,
    interval,
    plural,
    quantity,
    rate,
    share,
    usd,
    watt_hours,
)
from windtunnel.report.page import Bar, BarGroup, Cell, Tile
from windtunnel.report.run_tables import MANY_DEVICES, timed_cell
from windtunnel.report.run_text import MEANINGS, METRICS, STATISTICS, by_entry
from windtunnel.report.targets import overall_status, target_line, verdict

GLOSSARY = (
    *((METRICS[metric], MEANINGS[metric]) for metric in ("latency", "waiting", "ttft", "itl")),
    ("p50, p95, p99", "50th, 95th and 99th percentile"),
    ("95% CI", "95% confidence interval of the long-run value"),
    *((METRICS[metric], MEANINGS[metric]) for metric in ("tpot", "e2e")),
    ("Throughput", "completed jobs per second of simulated time"),
    ("Utilisation", "share of the rented time in which at least one engine of a device is busy"),
    (
        "Average and peak power",
        "power of the whole fleet, including idle power; the peak is the highest sum of its operations' average powers",
    ),
    ("Device limit", "sum of the power limits of all devices"),
    ("Power budget", "power that the whole fleet must not exceed at any time; jobs wait for it"),
    ("Energy", "integral of the power over the simulated time"),
    ("Availability", "share of device time in which a device was not down"),
    ("Cost", "rent of every device for the time for which it was rented, busy or idle"),
)

MEANING = dict(GLOSSARY)


@dataclass(frozen=True)
class RunReport:
    """What the sections show: the result, and the charts by name."""

    result: RunResult
    charts: Mapping[str, Chart]


def render(result: RunResult, recording: Recording) -> str:
    """Return the report of one run as a complete HTML document.

    Numbers come from ``result`` (SI units), and curves from ``recording`` (ticks). Names in either may hold any text:
    they are escaped wherever they are shown.
    """
    report = RunReport(result, charts(result, recording))
    replications, span = result.replications, exact_quantity(result.simulated_s, "s")
    same = "the same scenario, seed and engine give the same result"
    if result.real:
        same = "real devices were measured, so another run of the scenario gives another result"
    return page.render_page(
        kind="Windtunnel report",
        title=result.name,
        lead=result.description,
        facts=[
            plural(result.jobs.arrived, "job"),
            f"{plural(replications, 'replication')} of {span}" if replications > 1 else f"{span} simulated",
            run_text.fleet_text(result),
            f"seed {result.seed}",
        ],
        sections=[section(report) for section in SECTIONS],
        script="run.js",
        charts={name: chart.data for name, chart in report.charts.items()},
        footer=[page.versions_line(result.versions), f"{result.engine} engine · seed {result.seed} · {same}"],
    )


def _answer(report: RunReport) -> Markup:
    targets, rows = report.result.targets, report.result.provenance
    inputs = page.assumed_inputs(sum(row.provenance == "assumed" for row in rows), len(rows)) if rows else None
    said = [("Cost", serving.cost_text(report.result)), *(("Next", text) for text in next_steps(report.result))]
    remarks = [page.remark(label, text) for label, text in said if text]
    return page.answer(overall_status(targets), verdict(targets), [*map(target_line, targets)], *remarks, inputs)


def _key_figures(report: RunReport) -> Markup:
    result = report.result
    unstable = run_text.unstable_reason(result)
    times = [
        [Cell(heading, title=MEANING[heading]), *map(timed_cell, timed.by_name().values())]
        for heading, timed in run_text.timed_metrics(result)
    ]
    runs = run_text.interval_runs(result)
    intervals = f", with 95% confidence intervals{f' from {runs}' if runs else ''}" if not unstable else ""
    caption = f"Times of {_jobs_in_times(result)}{intervals}"
    return page.section(
        "figures",
        "Key figures",
        page.tiles(_tiles(result)),
        page.table(caption, ["Metric", *STATISTICS], times),
        page.hint(
            f"{unstable[0].upper()}{unstable[1:]}. Times have no mean, because they grow with the length of the run."
        )
        if unstable
        else None,
        page.definitions(run_text.certainty_rows(result)),
        page.notes(_notes(result)),
    )


def _tiles(result: RunResult) -> list[Tile]:
    """Return the key figures."""
    jobs, latency, unstable = result.jobs, result.latency_s, run_text.unstable_reason(result)
    items: list[Tile] = []

    def tile(label: str, meaning: str, value: str, *notes: str) -> None:
        text = page.with_kept_units(" · ".join(filter(None, notes)))
        items.append(Tile(label, value, text, MEANING.get(meaning, meaning)))

    for name in ("p50", "p95", "p99"):
        between = interval(latency.of(name))
        value = quantity(latency.of(name).value, "s")
        meaning = f"{name[1:]}th percentile of the {MEANING['Latency']}"
        tile(f"Latency {name}", meaning, value, f"95% CI {between}" if between else unstable or "")
    tile("Jobs completed", "", f"{jobs.completed:,}", f"of {jobs.arrived:,}", *run_text.unfinished(jobs))
    tokens_per_s = result.serving.output_tokens_per_s if result.serving is not None else None
    tokens = rate(tokens_per_s, "tokens") if tokens_per_s is not None else ""
    tile("Throughput", "Throughput", rate(result.throughput_per_s, "jobs"), tokens)
    hourly = result.cost_usd_per_h
    if result.cost_usd is None:
        tile("Cost", "Cost", NOTHING, "unknown, because a device has no price")
    else:
        tile("Cost", "Cost", usd(result.cost_usd), f"{usd(hourly)} per hour" if hourly is not None else "")
    average = result.average_power_w
    budget = result.power_budget
    limit, name = (result.power_limit_w, "device limit") if budget is None else (budget.normal_w, "power budget")
    of_limit = f"{share(average / limit)} of the {name}" if limit else ""
    widest = max(result.power_error, key=lambda error: error.factor, default=None)
    error = "" if widest is None else f"model error: a factor of {widest.factor:.3g} (90%, {widest.provenance})"
    tile("Average power", "Average and peak power", quantity(average, "W"), of_limit, error)
    peak = quantity(result.peak_power_w, "W")
    tile("Peak power", "Average and peak power", peak, *run_text.power_limits(result))
    per_job_j = run_text.per_job(result.energy_j, result)
    joules = f"{quantity(per_job_j, 'J')} per job" if per_job_j is not None else ""
    tile("Energy", "Energy", watt_hours(result.energy_j), joules)
    return items


def _jobs_in_times(result: RunResult) -> str:
    """Return which jobs the time statistics include."""
    warmup = result.statistics.warmup_jobs
    if not isinstance(warmup, int):
        return "all jobs except each replication's warm-up" if any(warmup) else "all jobs"
    if warmup and run_text.unstable_reason(result) is None:
        return f"all jobs except the first {warmup:,} (warm-up)"
    return "all jobs"


def _notes(result: RunResult) -> list[str]:
    notes = run_text.notes(result)
    replications = result.replications
    if replications > 1:
        notes.insert(
            0,
            f"Job counts are sums over {replications} replications; all other figures are means over them, with "
            "confidence intervals between them. Curves show the first replication.",
        )
    return notes


def _latency(report: RunReport) -> Markup:
    result, drawn = report.result, report.charts
    if "latency" in drawn:
        note = "The curve at p99 is the time that 99% of the jobs do not exceed. Lower is better. "
        note += "The horizontal axis is logarithmic in the share of jobs that are slower."
        if _jobs_in_times(result) != "all jobs":
            note += " The curves include the jobs of the warm-up."
        first = _percentiles(drawn["latency"], "latency", note)
    else:
        first = page.hint("No job completed, so there is no latency to draw.")
    others = [_percentiles(drawn[metric], metric) for metric in ("ttft", "itl") if metric in drawn]
    return page.section(
        "times",
        "Latency",
        page.no_script("The curves need JavaScript; every figure that they show is also in the tables."),
        first,
        page.pair(*others) if others else None,
    )


def _percentiles(chart: Chart, metric: str, note: str = "") -> Markup:
    curves = len(chart.legend) - any(item.line == "all" for item in chart.legend)
    after = ""
    if chart.omitted:
        verb = "is" if chart.omitted == 1 else "are"
        after = f"The chart shows {curves} workloads, those with targets and the largest; {chart.omitted} more {verb} "
        after += "in the table below."
    heading = f"{chart.heading} by percentile"
    wide = bool(note)
    return page.figure(metric, heading, chart.label, chart.legend, caption=note, after=after, tall=wide, live=metric)


def _fleet(report: RunReport) -> Markup:
    devices, drawn = report.result.devices, report.charts
    by_device = run_text.device_count(report.result) <= MANY_DEVICES
    caption = "Share of the rented time in which at least one engine of a device is busy."
    if not by_device:
        caption += " Bar: mean over the entry's devices. Thin line: range over them."
    idle = run_text.idle_by_budget(report.result)
    caption += f" {idle}." if idle else ""
    curves = [
        page.figure(name, drawn[name].heading, drawn[name].label, drawn[name].legend, live=name)
        for name in drawn
        if name not in ("latency", "ttft", "itl")
    ]
    no_power = (
        None
        if "power" in drawn
        else page.hint("No device of this fleet has a power model, so there is no power curve.")
    )
    title = f"Utilisation by {'device' if by_device else 'fleet entry'}"
    return page.section("fleet", "Utilisation and power", page.bars(title, caption, _bars(devices)), no_power, *curves)


def _bars(devices: Sequence[DeviceResult]) -> list[BarGroup]:
    """Return utilisation bars by fleet entry; for many devices one bar an entry, with the range over its devices."""

    def bar(name: str, value: float, low: float | None = None, high: float | None = None) -> Bar:
        return Bar(name, value, share(value), low, high)

    entries = by_entry(devices)
    if sum(entry.count for entry in entries) > MANY_DEVICES:
        rows = [bar(f"{entry.count:,} × {entry.label}", entry.mean, entry.lowest, entry.highest) for entry in entries]
        return [BarGroup("", "", rows)]
    groups = []
    for entry in entries:
        rows = [bar(device.name, device.utilisation) for device in devices if device.entry == entry.name]
        # A heading that would only repeat the name below it is omitted.
        repeats = entry.count == 1 and rows[0].name == entry.label
        note = f"mean {share(entry.mean)}" if entry.count > 1 else ""
        groups.append(BarGroup("" if repeats else entry.label, note, rows))
    return groups


def _cost(report: RunReport) -> Markup:
    result = report.result
    total, hourly = result.cost_usd, result.cost_usd_per_h
    if total is None:
        text = (
            "The cost is unknown, because a device has no price. State it in the fleet entry, as in price: 2.5 USD/h."
        )
        return page.section("cost", "Cost", page.hint(text))
    scaled = bool(result.autoscale)
    per_job_usd = run_text.per_job(total, result)
    span = exact_quantity(result.simulated_s, "s")
    items = [Tile("This run", usd(total), f"{span} of the fleet{' as rented' if scaled else ''}")]
    if hourly is not None:
        basis = "mean over the run" if scaled else "rent of the fleet, busy or idle"
        items.append(Tile("Per hour", usd(hourly), basis))
        items.append(Tile("Per year", usd(round(hourly * 8760)).replace(".00", ""), "8,760 hours at this rent"))
    if per_job_usd is not None:
        items.append(Tile("Per million jobs", usd(per_job_usd * 1e6), "at this run's throughput"))
    return page.section("cost", "Cost", page.tiles(items, "cost"))


def _scenario(report: RunReport) -> Markup:
    return page.scenario(report.result.scenario)


def _glossary(_: RunReport) -> Markup:
    return page.glossary(GLOSSARY)


SECTIONS: Sequence[Callable[[RunReport], Markup | None]] = (
    _answer,
    _key_figures,
    _latency,
    lambda report: serving_section.section(report.result),
    _fleet,
    _cost,
    lambda report: run_tables.section(report.result),
    _scenario,
    lambda report: run_inputs.provenance_section(report.result),
    lambda report: run_inputs.accuracy_section(report.result),
    _glossary,
)
"""The sections in order. A new section is one function, listed here."""
