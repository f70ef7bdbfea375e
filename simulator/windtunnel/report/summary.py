"""The terminal summary of a run: its verdict, what tokens cost and what to do next, then the metrics behind it."""

from __future__ import annotations

from windtunnel.core.results.run import RunResult
from windtunnel.report import serving
from windtunnel.report.next_steps import next_steps
from windtunnel.report.numbers import (
    NOTHING,
    exact_quantity,
    interval,
    number,
    plural,
    printable,
    quantity,
    rate,
    share,
)
from windtunnel.report.run_text import (
    STATISTICS,
    by_entry,
    certainty_rows,
    cost_text,
    design_lines,
    energy_text,
    fault_lines,
    fleet_text,
    idle_by_budget,
    interval_runs,
    notes,
    power_lines,
    progress_lines,
    timed_metrics,
    unfinished,
    unstable_reason,
)
from windtunnel.report.targets import verdict_lines
from windtunnel.report.text import MARGIN, document, labelled, labelled_rows, table_lines

_MAX_ENTRIES = 6
"""Fleet entries that are listed."""


def summary(result: RunResult) -> str:
    """Return ``result`` as about 15 aligned lines of plain text."""
    lines = [
        *verdict_lines(result.targets),
        *_decision(result),
        "",
        printable(f"{result.name}: {_conditions(result)}"),
        "",
    ]
    for section in SECTIONS:
        lines += section(result)
    return document(lines)


def _decision(result: RunResult) -> list[str]:
    """Return the cost of tokens and what to do next, which follow the verdict."""
    cost = serving.cost_text(result)
    lines = labelled("cost", cost) if cost else []
    return [
        *lines,
        *(line for i, text in enumerate(next_steps(result)) for line in labelled("" if i else "next", text)),
    ]


def _conditions(result: RunResult) -> str:
    span = f"{result.replications} × " if result.replications > 1 else ""
    span += exact_quantity(result.simulated_s, "s")
    return (
        f"{plural(result.jobs.arrived, 'job')} over {span} on {fleet_text(result)}, "
        f"seed {result.seed}, {result.engine} engine"
    )


def _jobs(result: RunResult) -> list[str]:
    jobs = result.jobs
    return labelled("jobs", ", ".join([f"{jobs.completed:,} of {jobs.arrived:,} completed", *unfinished(jobs)]))


def _faults(result: RunResult) -> list[str]:
    return labelled("faults", fault_lines(result))


def _progress(result: RunResult) -> list[str]:
    return labelled("progress", progress_lines(result))


def _designs(result: RunResult) -> list[str]:
    return labelled("designs", design_lines(result))


def _throughput(result: RunResult) -> list[str]:
    tokens = result.serving.output_tokens_per_s if result.serving is not None else None
    jobs = rate(result.throughput_per_s, "jobs")
    return labelled("throughput", jobs if tokens is None else f"{jobs}, {rate(tokens, 'tokens')}")


def _times(result: RunResult) -> list[str]:
    """Return a table with a line for each metric and a column for each statistic; below it, how certain it is."""
    names = {"Latency": "latency", "Queueing delay": "waiting", "End-to-end latency": "end to end"}
    timed = [(names.get(heading, heading), times) for heading, times in timed_metrics(result)]
    unstable = unstable_reason(result)
    if unstable is not None:
        return [line for name, _ in timed for line in labelled(name, unstable)]
    runs = interval_runs(result)
    of_mean, of_p99 = (f"95% CI of {name}{f' ({runs})' if runs else ''}" for name in ("mean", "p99"))
    rows = [["", *STATISTICS, of_mean, of_p99]]
    for name, times in timed:
        cells = [quantity(times.of(statistic).value, "s") for statistic in STATISTICS]
        rows.append([name, *cells, interval(times.mean) or NOTHING, interval(times.p99) or NOTHING])
    return labelled_rows(rows, ">>>><") + [
        line for label, text in certainty_rows(result) for line in labelled(label, text)
    ]


def _model_error(result: RunResult) -> list[str]:
    """Return a table of the model error intervals of the times of requests, apart from those for chance."""
    caveat = serving.model_error_caveat(result)
    return labelled_rows(serving.model_error_rows(result), ">") + (labelled("", caveat) if caveat else [])


def _serving(result: RunResult) -> list[str]:
    return labelled("serving", serving.lines(result))


def _utilisation(result: RunResult) -> list[str]:
    """Return a line for each fleet entry: the mean over its devices, and the range over them.

    For an entry that serves requests the section on them tells its use: with a single sequence it is busy already.
    """
    serves = () if result.serving is None else [entry.entry for entry in result.serving.entries]
    entries = [entry for entry in by_entry(result.devices) if entry.name not in serves]
    rows = [
        [
            entry.label,
            f"{entry.count:,} ×",
            share(entry.mean),
            f"({share(entry.lowest)} to {share(entry.highest)} per {entry.unit})" if entry.count > 1 else "",
        ]
        for entry in entries[:_MAX_ENTRIES]
    ]
    lines = table_lines(rows, "<>><")
    if len(entries) > _MAX_ENTRIES:
        lines.append(f"and {plural(len(entries) - _MAX_ENTRIES, 'more entry', 'more entries')}")
    lines += filter(None, [idle_by_budget(result)])
    return [f"{'utilisation' if i == 0 else '':<{MARGIN}}{line}" for i, line in enumerate(lines)]


def _autoscaling(result: RunResult) -> list[str]:
    """Return a line for each scaled entry: how many devices were in service, and how often that number changed."""
    entries = result.autoscale
    which = "; first replication" if result.replications > 1 else ""
    lines = [
        f"{entry.entry}  mean {number(entry.mean_in_service)} in service ({entry.min_in_service:,} to "
        f"{entry.max_in_service:,} of {entry.max:,}); scaled up {plural(entry.scale_ups, 'time')}, "
        f"down {plural(entry.scale_downs, 'time')}{which}"
        for entry in entries[:_MAX_ENTRIES]
    ]
    if len(entries) > _MAX_ENTRIES:
        lines.append(f"and {len(entries) - _MAX_ENTRIES} more")
    return labelled("autoscale", lines)


def _power(result: RunResult) -> list[str]:
    return labelled("power", power_lines(result))


def _energy(result: RunResult) -> list[str]:
    return labelled("energy", energy_text(result))


def _cost(result: RunResult) -> list[str]:
    return labelled("cost", cost_text(result))


def _inputs(result: RunResult) -> list[str]:
    rows = result.provenance
    assumed = sum(row.provenance == "assumed" for row in rows)
    return labelled("inputs", f"{assumed:,} of {plural(len(rows), 'model input')} are assumed") if rows else []


def _notes(result: RunResult) -> list[str]:
    return [line for note in notes(result) for line in labelled("note", note)]


SECTIONS = (
    _jobs,
    _faults,
    _progress,
    _designs,
    _throughput,
    _times,
    _model_error,
    _serving,
    _utilisation,
    _autoscaling,
    _power,
    _energy,
    _cost,
    _inputs,
    _notes,
)
"""The parts of the summary after its verdict, in order. A new part is one function, listed here."""
