"""The short answer for a terminal: what ran, whether it meets its targets, and the figures behind that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from windtunnel.report.words import (
    METRICS,
    NOTHING,
    STATISTICS,
    by_sku,
    fault_lines,
    interval,
    number,
    per_job,
    plural,
    quantity,
    rate,
    share,
    stated,
    target_line,
    unfinished,
    usd,
    verdict,
    watt_hours,
)

_MARGIN = 15
_WIDTH = 110
_SKUS = 6


def summary(result: Mapping[str, Any]) -> str:
    """``result`` (the content of result.json, SI units) as about 15 aligned lines of plain text."""
    lines = [_one_line(f"{result['name']}: {_ran(result)}"), ""]
    lines += _targets(result)
    lines += _figures(result)
    for note in result.get("notes") or ():
        wrapped = wrap(_one_line(str(note)), width=_WIDTH - _MARGIN)
        lines += [_row("note" if i == 0 else "", line) for i, line in enumerate(wrapped)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _one_line(text: str) -> str:
    """``text`` without line breaks or terminal control codes: names come from files people are sent."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _row(label: str, text: str) -> str:
    return f"{label:<{_MARGIN}}{text}"


def _ran(result: Mapping[str, Any]) -> str:
    devices = result["devices"]
    skus = len({device["sku"] for device in devices})
    fleet = plural(len(devices), "device") + (
        f" of {skus} SKUs" if skus > 1 else f" ({devices[0]['sku']})" if skus else ""
    )
    repeated = result.get("replications") or 1
    span = (f"{repeated} × " if repeated > 1 else "") + stated(result["span_s"], "s")
    return (
        f"{plural(result['jobs']['arrived'], 'job')} over {span} on {fleet}, "
        f"seed {result['seed']}, {result['engine']} engine"
    )


def _targets(result: Mapping[str, Any]) -> list[str]:
    lines = [_one_line(verdict(result["targets"]) + ("" if result["targets"] else "; nothing to meet or miss"))]
    shown = [target_line(target) for target in result["targets"]]
    if not shown:
        return [*lines, ""]
    widths = [max(map(len, column)) for column in zip(*((_one_line(t.text), t.measured) for t in shown), strict=True)]
    for target in shown:
        word = "met" if target.met else "MISSED"
        text = f"{word:<8}{_one_line(target.text):<{widths[0]}}   {target.measured:>{widths[1]}}   {target.margin}"
        lines.append(f"  {text}")
    return [*lines, ""]


def _figures(result: Mapping[str, Any]) -> list[str]:
    jobs = result["jobs"]
    done = f"{jobs['completed']:,} of {jobs['arrived']:,} completed"
    lines = [_row("jobs", ", ".join([done, *unfinished(jobs)]))]
    lines += [_row("faults" if i == 0 else "", line) for i, line in enumerate(fault_lines(result))]
    throughput = rate(result["throughput_per_s"], "jobs")
    if result.get("tokens_per_s") is not None:
        throughput += f", {rate(result['tokens_per_s'], 'tokens')}"
    lines.append(_row("throughput", throughput))
    lines += _times(result)
    shares = by_sku(result["devices"])
    width = max((len(_one_line(one.sku)) for one in shares), default=0)
    for i, one in enumerate(shares[:_SKUS]):
        apart = f" ({share(one.least)} to {share(one.most)})" if one.count > 1 else ""
        text = f"{_one_line(one.sku):<{width}}  {one.count:>5,} ×  {share(one.mean):>6} busy{apart}"
        lines.append(_row("utilisation" if i == 0 else "", text))
    if len(shares) > _SKUS:
        lines.append(_row("", f"and {plural(len(shares) - _SKUS, 'more SKU')}"))
    lines += _scaling(result.get("autoscale") or ())
    power = f"{quantity(result['average_power_w'], 'W')} average, {quantity(result['peak_power_w'], 'W')} peak"
    if result.get("power_limit_w"):
        power += f", {quantity(result['power_limit_w'], 'W')} limit"
    lines.append(_row("power", power))
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


def _scaling(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a scaled entry: how many devices were on, and how often that changed."""
    lines = []
    for i, one in enumerate(entries[:_SKUS]):
        text = (
            f"{_one_line(one['entry'])}  {number(one['mean_on'])} on average, {one['least_on']:,} to "
            f"{one['most_on']:,} of {one['most']:,}; {plural(one['ups'], 'time')} up, {one['downs']:,} down"
        )
        lines.append(_row("autoscale" if i == 0 else "", text))
    if len(entries) > _SKUS:
        lines.append(_row("", f"and {len(entries) - _SKUS} more"))
    return lines


def _times(result: Mapping[str, Any]) -> list[str]:
    """A small table: one line a metric, one column a statistic, the 95% interval of the p99 last."""
    rows = [["", *STATISTICS, "95% interval of p99"]]
    names = {"latency": "latency", "waiting": "waiting", "first_token": "first token", "next_token": "next token"}
    for metric in METRICS:
        timed = result.get(f"{metric}_s")
        if timed is None:
            continue
        cells = [quantity((timed.get(statistic) or {}).get("value"), "s") for statistic in STATISTICS]
        rows.append([names[metric], *cells, interval(timed.get("p99"))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _row(row[0], "   ".join([f"{cell:>{w}}" for cell, w in zip(row[1:5], widths[1:5], strict=True)] + [row[5]]))
        for row in rows
    ]
