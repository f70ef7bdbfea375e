"""The short answer for a terminal: what ran, whether it meets its targets, and the figures behind that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from windtunnel.core.result import distribution
from windtunnel.report.words import (
    NOTHING,
    STATISTICS,
    badge,
    by_entry,
    fault_lines,
    interval,
    never_started,
    no_average,
    notes_beside_figures,
    number,
    per_job,
    plural,
    power_lines,
    printable,
    quantity,
    rate,
    share,
    stated,
    sureness,
    target_line,
    unfinished,
    usd,
    verdict,
    watt_hours,
)

_MARGIN = 15
_WIDTH = 110
_ENTRIES = 6


def summary(result: Mapping[str, Any]) -> str:
    """``result`` (the content of result.json, SI units) as about 15 aligned lines of plain text."""
    lines = [printable(f"{result['name']}: {_ran(result)}"), ""]
    lines += _targets(result)
    lines += _figures(result)
    for note in notes_beside_figures(result):
        wrapped = wrap(printable(str(note)), width=_WIDTH - _MARGIN)
        lines += [_row("note" if i == 0 else "", line) for i, line in enumerate(wrapped)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(label: str, text: str) -> str:
    return f"{label:<{_MARGIN}}{text}"


def _ran(result: Mapping[str, Any]) -> str:
    devices = result["devices"]
    skus = len({device["sku"] for device in devices})
    fleet = plural(len(devices), "device") + (
        f" of {skus} SKUs" if skus > 1 else f" ({devices[0]['sku']})" if skus else ""
    )
    repeated = result.get("replications") or 1
    span = (f"{repeated} × " if repeated > 1 else "") + stated(result["simulated_s"], "s")
    return (
        f"{plural(result['jobs']['arrived'], 'job')} over {span} on {fleet}, "
        f"seed {result['seed']}, {result['engine']} engine"
    )


def _targets(result: Mapping[str, Any]) -> list[str]:
    lines = [printable(verdict(result["targets"]) + ("" if result["targets"] else "; nothing to meet or miss"))]
    shown = [target_line(target) for target in result["targets"]]
    if not shown:
        return [*lines, ""]
    widths = [max(map(len, column)) for column in zip(*((printable(t.text), t.measured) for t in shown), strict=True)]
    for target in shown:
        text = f"{printable(target.text):<{widths[0]}}   {target.measured:>{widths[1]}}   {printable(target.margin)}"
        lines.append(f"  {badge(target):<8}{text}")
    return [*lines, ""]


def _figures(result: Mapping[str, Any]) -> list[str]:
    jobs = result["jobs"]
    done = f"{jobs['completed']:,} of {jobs['arrived']:,} completed"
    lines = [_row("jobs", ", ".join([done, *unfinished(jobs)]))]
    struck = [part for line in fault_lines(result) for part in wrap(printable(line), width=_WIDTH - _MARGIN)]
    lines += [_row("faults" if i == 0 else "", line) for i, line in enumerate(struck)]
    throughput = rate(result["throughput_per_s"], "jobs")
    tokens_per_s = (result.get("serving") or {}).get("output_tokens_per_s")
    if tokens_per_s is not None:
        throughput += f", {rate(tokens_per_s, 'tokens')}"
    lines.append(_row("throughput", throughput))
    lines += _times(result)
    lines += _utilisation(result)
    lines += _scaling(result.get("autoscale") or (), result)
    lines += [_row("power" if i == 0 else "", line) for i, line in enumerate(power_lines(result))]
    energy = f"{quantity(result['energy_j'], 'J')} ({watt_hours(result['energy_j'])})"
    each = per_job(result["energy_j"], result)
    if each is not None:
        energy += f", {quantity(each, 'J')} a job"
    lines.append(_row("energy", energy))
    if result.get("cost_usd") is None:
        lines.append(_row("cost", f"{NOTHING} (no price is known)"))
    else:
        cost = usd(result["cost_usd"])
        if result.get("cost_usd_per_h") is not None:
            cost += f", {usd(result['cost_usd_per_h'])} an hour"
        each = per_job(result["cost_usd"], result)
        if each is not None:
            cost += f", {usd(each * 1e6)} a million jobs"
        lines.append(_row("cost", cost))
    rows = result.get("provenance") or ()
    guesses = sum(row["provenance"] == "assumed" for row in rows)
    if rows:
        lines.append(_row("provenance", f"{number(guesses)} of {plural(len(rows), 'number')} that entered are assumed"))
    return lines


def _utilisation(result: Mapping[str, Any]) -> list[str]:
    """One line a fleet entry: the mean over its devices, from the least to the most used of them."""
    shares, lines = by_entry(result["devices"]), []
    width = max((len(printable(one.label)) for one in shares), default=0)
    for i, one in enumerate(shares[:_ENTRIES]):
        apart = f", {share(one.least)} to {share(one.most)} each" if one.count > 1 else ""
        text = f"{printable(one.label):<{width}}  {one.count:>5,} ×  {share(one.mean):>6} busy{apart}"
        lines.append(_row("utilisation" if i == 0 else "", text))
    if len(shares) > _ENTRIES:
        lines.append(_row("", f"and {plural(len(shares) - _ENTRIES, 'more entry', 'more entries')}"))
    never = never_started(result)
    if never:
        lines.append(_row("", never))
    return lines


def _scaling(entries: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> list[str]:
    """One line a scaled entry: how many devices were on, and how often that changed."""
    lines = []
    first = "; the first replication" if (result.get("replications") or 1) > 1 else ""
    for i, one in enumerate(entries[:_ENTRIES]):
        text = (
            f"{printable(one['entry'])}  {number(one['mean_in_service'])} on average, {one['min_in_service']:,} to "
            f"{one['max_in_service']:,} of {one['max']:,}; {plural(one['scale_ups'], 'time')} up, "
            f"{one['scale_downs']:,} down{first}"
        )
        lines.append(_row("autoscale" if i == 0 else "", text))
    if len(entries) > _ENTRIES:
        lines.append(_row("", f"and {len(entries) - _ENTRIES} more"))
    return lines


def _times(result: Mapping[str, Any]) -> list[str]:
    """A small table: one line a metric, one column a statistic, then 95% intervals; below it, how sure all that is."""
    names = {"latency": "latency", "waiting": "waiting", "ttft": "TTFT", "itl": "ITL"}
    timed = [(name, times) for metric, name in names.items() if (times := distribution(result, metric)) is not None]
    unstable = no_average(result)
    if unstable is not None:
        return [
            _row(name, line) for name, line in zip((name for name, _ in timed), [unstable] * len(timed), strict=True)
        ]
    rows = [["", *STATISTICS, "95% interval of mean", "and of p99"]]
    for name, one in timed:
        cells = [quantity((one.get(statistic) or {}).get("value"), "s") for statistic in STATISTICS]
        rows.append([name, *cells, *(interval(one.get(statistic)) or NOTHING for statistic in ("mean", "p99"))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        _row(
            row[0],
            "   ".join(
                [f"{cell:>{w}}" for cell, w in zip(row[1:5], widths[1:5], strict=True)]
                + [f"{row[5]:<{widths[5]}}", row[6]]
            ),
        )
        for row in rows
    ]
    for label, text in sureness(result):
        wrapped = wrap(printable(text), width=_WIDTH - _MARGIN)
        lines += [_row(label if i == 0 else "", line) for i, line in enumerate(wrapped)]
    return lines
