"""The report: one HTML file that opens offline, answers first and shows where every number came from.

The page may load nothing: its Content-Security-Policy forbids every request and allows exactly the two scripts
pasted into it, by their hashes, so that a name from somebody's scenario can never run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from windtunnel.core.provenance import PROVENANCES
from windtunnel.core.result import COMPLETED, Recording, Steps
from windtunnel.core.ticks import FloatArray, TickArray, to_second_array
from windtunnel.report import words
from windtunnel.report.words import METRICS, NOTHING, STATISTICS

TIME_POINTS = 480
"""Bins of a curve over time: about two pixels each on the widest chart."""

TAIL_POINTS = 240
"""Points of a percentile curve."""

FIRST_MARK = -math.log10(0.99)
"""Curves begin at p1: the very least of a million draws is an accident, and would take half of a log axis."""

MAX_CURVES = 8
MAX_BARS = 24
"""Above this many devices the utilisation chart shows SKUs instead."""

MAX_DEVICE_ROWS = 200
MAX_PROVENANCE_ROWS = 2_000
MAX_SCENARIO_CHARACTERS = 60_000

CURVES = ("latency", "first_token", "next_token")

GLOSSARY = (
    ("Latency", "from a job's arrival to its finish, completed jobs only"),
    ("Waiting", "from a job's arrival until a device takes it up"),
    ("Time to first token", "from a job's arrival until its first token has left"),
    ("Time to next token", "between one token of a job and the following one"),
    ("p50, p95, p99", "the time within which 50, 95 or 99% of them stayed"),
    ("95% interval", "where the value of a far longer run lies, with 95% confidence"),
    ("Throughput", "completed jobs divided by the time simulated"),
    ("Utilisation", "the share of the time in which at least one engine of a device worked"),
    ("Average and peak power", "of the whole fleet, idle power included; the peak is the highest instant"),
    ("Limit", "the most the fleet's devices may draw together"),
    ("Energy", "power added up over the time simulated"),
    ("Availability", "the share of the devices' time in which they had not failed"),
    ("Cost", "the price of every device for the time it was rented, busy or not"),
)

MEANING = dict(GLOSSARY)

PROVENANCE_MEANING = {
    "measured": "measured by Windtunnel on this very device",
    "published": "a measurement somebody else published",
    "datasheet": "a vendor's specification, or a source quoting one",
    "assumed": "nobody published it: a stated assumption with a range",
}
PROVENANCE_MARK = {"measured": "●", "published": "◐", "datasheet": "○", "assumed": "▲"}


MODEL_BASIS = {
    "measured": "measurements of this SKU",
    "relatives": "measurements of other devices",
    "formula": "formula and published constants",
}


def render(result: Mapping[str, Any], recording: Recording) -> str:
    """The report of one run as a complete HTML document.

    ``result`` is the content of result.json (SI units); the curves come from ``recording`` (ticks). Names in
    either may hold anything: they are escaped wherever they are shown.
    """
    charts, figures = _charts(result, recording)
    scripts = {"uplot": _vendored("uPlot.iife.min.js"), "app": _template_text("report.js")}
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(_hash(text) for text in scripts.values())}"
    )
    page = _environment().get_template("report.html.j2")
    return page.render(
        policy=policy,
        scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704 -- our own files
        styles=Markup(_vendored("uPlot.min.css") + _template_text("report.css")),  # noqa: S704 -- our own files
        data=_embedded(charts),
        figures=figures,
        name=str(result["name"]),
        description=result.get("description"),
        ran=_ran(result),
        verdict=words.verdict(result["targets"]),
        state=_state(result["targets"]),
        targets=[_target(target) for target in result["targets"]],
        tiles=_tiles(result),
        times=_times(result),
        cost=_cost(result),
        bars=_bars(result["devices"]),
        skus=_sku_rows(result["devices"]),
        devices=_device_rows(result["devices"]),
        faults=_fault_rows(result),
        workloads=_workload_rows(result["workloads"]),
        scenario=_scenario(result["scenario"]),
        provenance=_provenance(result.get("provenance") or ()),
        models=_models(result.get("models") or ()),
        notes=_notes(result),
        glossary=GLOSSARY,
        versions=result["versions"],
        seed=result["seed"],
        engine=result["engine"],
        statistics=STATISTICS,
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("windtunnel.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _vendored(name: str) -> str:
    return (resources.files("windtunnel.report") / "vendor" / name).read_text(encoding="utf-8")


@cache
def _template_text(name: str) -> str:
    return (resources.files("windtunnel.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """A script's source expression for the policy: what stands between its tags, byte for byte."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(data: Any) -> Markup:
    """``data`` as JSON that no parser of HTML can mistake for markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704 -- nothing is left in it that could end the element


# The answer


def _state(targets: Sequence[Mapping[str, Any]]) -> str:
    if not targets:
        return "none"
    return "met" if all(target["met"] for target in targets) else "missed"


def _target(target: Mapping[str, Any]) -> dict[str, Any]:
    line = words.target_line(target)
    # The limit's tick stands at two thirds of the track, so that a miss has room to show how far it went.
    reach = None if line.reach is None else min(max(line.reach, 0.0), 1.5) / 1.5 * 100
    return {"line": line, "reach": reach, "beyond": line.reach is not None and line.reach > 1.5}


def _ran(result: Mapping[str, Any]) -> list[str]:
    devices = result["devices"]
    skus = {str(device["sku"]) for device in devices}
    fleet = words.plural(len(devices), "device")
    repeated, span = result.get("replications") or 1, words.stated(result["span_s"], "s")
    return [
        words.plural(result["jobs"]["arrived"], "job"),
        f"{words.plural(repeated, 'replication')} of {span}" if repeated > 1 else f"{span} simulated",
        f"{fleet} of {len(skus)} SKUs" if len(skus) > 1 else " ".join([fleet, *(f"({sku})" for sku in skus)]),
        f"seed {result['seed']}",
    ]


def _tiles(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """The key figures: a label, a value, and one line that puts the value in proportion."""
    jobs, latency = result["jobs"], result["latency_s"]
    completed, limit = jobs["completed"], result.get("power_limit_w")
    tiles: list[dict[str, str]] = []

    def tile(label: str, meaning: str, value: str, *more: str) -> None:
        figure, _, unit = value.partition(" ")
        meaning = MEANING.get(meaning, meaning)
        tiles.append(
            {
                "label": label,
                "meaning": meaning,
                "value": figure,
                "unit": unit,
                "more": _kept(" · ".join(filter(None, more))),
            }
        )

    for name, plain in (("p50", "half of the jobs"), ("p95", "19 of 20 jobs"), ("p99", "99 of 100 jobs")):
        between = words.interval(latency.get(name))
        value = words.quantity((latency.get(name) or {}).get("value"), "s")
        meaning = f"{plain} took no longer {MEANING['Latency']}"
        tile(f"Latency {name}", meaning, value, f"95% interval {between}" if between else "")
    tile("Jobs completed", "", f"{completed:,}", f"of {jobs['arrived']:,}", *words.unfinished(jobs))
    tokens = words.rate(result["tokens_per_s"], "tokens") if result.get("tokens_per_s") is not None else ""
    tile("Throughput", "Throughput", words.rate(result["throughput_per_s"], "jobs"), tokens)
    hourly = result.get("cost_usd_per_h")
    if result.get("cost_usd") is None:
        tile("Cost", "Cost", NOTHING, "no price is known")
    else:
        tile(
            "Cost", "Cost", words.usd(result["cost_usd"]), f"{words.usd(hourly)} an hour" if hourly is not None else ""
        )
    average = result["average_power_w"]
    of_limit = f"{words.share(average / limit)} of the limit" if limit else ""
    tile("Average power", "Average and peak power", words.quantity(average, "W"), of_limit)
    peak = words.quantity(result["peak_power_w"], "W")
    tile("Peak power", "Average and peak power", peak, f"limit {words.stated(limit, 'W')}" if limit else "")
    each = words.per_job(result["energy_j"], result)
    joules = f"{words.quantity(each, 'J')} a job" if each is not None else ""
    tile("Energy", "Energy", words.watt_hours(result["energy_j"]), joules)
    return tiles


def _kept(text: str) -> str:
    """``text`` with every number kept on the line of its unit."""
    return re.sub(r"(?<=\d) (?=[^\W\d]|%)", "\u00a0", text)


def _times(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a timed metric, one cell a statistic."""
    rows = []
    for metric, heading in METRICS.items():
        timed = result.get(f"{metric}_s")
        if timed is not None:
            cells = [_cell(timed.get(statistic)) for statistic in STATISTICS]
            rows.append({"heading": heading, "meaning": MEANING[heading], "cells": cells})
    return rows


def _cell(statistic: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        "value": words.quantity((statistic or {}).get("value"), "s"),
        "interval": words.interval(statistic),
    }


def _cost(result: Mapping[str, Any]) -> list[tuple[str, str, str]] | None:
    """What it costs, in the units a budget is made in; None where a price is missing."""
    total, hourly = result.get("cost_usd"), result.get("cost_usd_per_h")
    if total is None:
        return None
    each = words.per_job(total, result)
    fleet = "the fleet as it was rented" if result.get("autoscale") else "the whole fleet"
    rows = [("This run", words.usd(total), f"{words.stated(result['span_s'], 's')} of {fleet}")]
    if hourly is not None:
        of_hour = "on average, busy or not" if result.get("autoscale") else "the fleet's price, busy or not"
        rows.append(("An hour", words.usd(hourly), of_hour))
        rows.append(("A year", words.usd(round(hourly * 8760)).replace(".00", ""), "8,760 hours at that price"))
    if each is not None:
        rows.append(("A million jobs", words.usd(each * 1e6), "at this run's throughput"))
    tokens = result.get("tokens_per_s")
    if tokens:
        made = tokens * result["span_s"]
        rows.append(("A million tokens", words.usd(total / made * 1e6), "at this run's token rate"))
    return rows


def _notes(result: Mapping[str, Any]) -> list[str]:
    notes = [str(note) for note in result.get("notes") or ()]
    repeated = result.get("replications") or 1
    if repeated > 1:
        notes.insert(
            0,
            f"{repeated} replications: job counts are their sum, other figures their mean, intervals lie between "
            "them; curves and devices show the first.",
        )
    return notes


# The charts


def _charts(result: Mapping[str, Any], recording: Recording) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """(what the script draws, what the page says around each drawing), by chart."""
    charts: dict[str, Any] = {}
    figures: dict[str, dict[str, Any]] = {}
    for metric in CURVES:
        drawn = _percentile_chart(metric, result, recording)
        if drawn is None:
            continue
        charts[metric], left_out = drawn
        figures[metric] = {
            "heading": METRICS[metric],
            "legend": [{"name": one["name"], "all": one["all"]} for one in charts[metric]["series"]],
            "shift": int(charts[metric]["series"][0]["all"]),
            "left_out": left_out,
            "label": _describe(METRICS[metric], result.get(f"{metric}_s")),
        }
    limit = result.get("power_limit_w")
    if recording.end > 0 and result["peak_power_w"] > 0:
        watts = words.quantity(result["average_power_w"], "W"), words.quantity(result["peak_power_w"], "W")
        charts["power"] = _time_chart(recording.power, "W", limit)
        within = f", limit {words.stated(limit, 'W')}" if limit else ""
        figures["power"] = {
            "heading": "Power of the fleet over time",
            "label": f"Line chart of power over time: average {watts[0]}, peak {watts[1]}{within}.",
            "limit": words.stated(limit, "W") if limit else None,
        }
    if recording.end > 0:
        queue = recording.waiting
        charts["waiting"] = _time_chart(queue, "jobs", None)
        mean, most = words.number(queue.mean()), words.number(float(queue.values.max()))
        figures["waiting"] = {
            "heading": "Jobs waiting over time",
            "label": f"Line chart of jobs waiting over time: {mean} on average, {most} at most.",
            "mean": mean,
            "most": most,
        }
    for number, one in enumerate(recording.scaling[:MAX_CURVES] if recording.end > 0 else ()):
        charts[f"scaling-{number}"] = _time_chart(one.rented, "devices", None)
        mean, most = words.number(one.rented.mean()), words.number(float(one.rented.values.max()))
        figures[f"scaling-{number}"] = {
            "heading": f"Devices of {one.entry} rented over time, {one.least:,} to {one.most:,}",
            "label": f"Line chart of devices rented over time: {mean} on average, {most} at most.",
            "mean": mean,
            "most": most,
        }
    return charts, figures


def _describe(heading: str, timed: Mapping[str, Any] | None) -> str:
    parts = [f"{name} {_cell((timed or {}).get(name))['value']}" for name in ("p50", "p95", "p99")]
    return f"Percentile curve of {heading.lower()}: {', '.join(parts)}."


def _percentile_chart(
    metric: str, result: Mapping[str, Any], recording: Recording
) -> tuple[dict[str, Any], int] | None:
    """The percentile curve of every workload (the largest few) and of all, and how many workloads it leaves out."""
    count = len(recording.workloads)
    samples = {i: sample for i in range(count) if (sample := _sample(metric, recording, i))[1]}
    if not samples:
        return None
    # Where not all find room, those that a target names go before the larger ones.
    named = {target.get("workload") for target in result["targets"] if target.get("metric") == metric}
    order = sorted(samples, key=lambda i: (recording.workloads[i] not in named, -samples[i][1], i))
    drawn = sorted(order[:MAX_CURVES])
    # Targets are about all jobs, so with several workloads the curve they are met or missed on comes first.
    curves = [(str(recording.workloads[i]), False, samples[i]) for i in drawn]
    if len(samples) > 1:
        curves.insert(0, ("all jobs", True, _sample(metric, recording, None)))
    # Percentiles are spread by nines: u = -log10(1 - p), so that p99 gets as much room as p90.
    end = min(max(math.log10(max(total for _, _, (_, total, _) in curves)), 1.31), 5.0)
    marks = [-math.log10(1 - p) for p in (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)]
    u = np.unique(np.concatenate([np.linspace(FIRST_MARK, end, TAIL_POINTS), [mark for mark in marks if mark <= end]]))
    p = 1 - 10.0**-u
    series: list[dict[str, Any]] = []
    for name, of_all, (values, total, cumulative) in curves:
        rank = np.minimum(np.searchsorted(cumulative, p * total, side="left"), len(values) - 1)
        # Beyond one in `total` there is nothing to read; a log axis has no place for zero.
        seen = (u <= math.log10(total) + 1e-9) & (values[rank] > 0)
        series.append({"name": name, "all": of_all, "y": _rounded(np.where(seen, values[rank], np.nan))})
    if not any(value is not None for one in series for value in one["y"]):
        return None
    targets = [
        {"at": _mark(str(target.get("statistic"))), "limit": target["limit"], "met": bool(target["met"]), "label": text}
        for target in result["targets"]
        if target.get("metric") == metric and target.get("limit")
        for text in [_target_label(target)]
    ]
    return {"kind": "percentile", "x": _rounded(u), "series": series, "targets": targets}, len(samples) - len(drawn)


def _target_label(target: Mapping[str, Any]) -> str:
    of = f"of {target['workload']}" if target.get("workload") else ""
    return " ".join(filter(None, [str(target.get("statistic") or ""), of, words.target_line(target).bound]))


def _mark(statistic: str) -> float | None:
    """Where a statistic stands on the percentile axis; None for the mean, which has no place on it."""
    found = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
    if not found or not 0 <= float(found.group(1)) < 100:
        return None
    return -math.log10(1 - float(found.group(1)) / 100)


def _sample(metric: str, recording: Recording, workload: int | None) -> tuple[FloatArray, int, npt.NDArray[np.int64]]:
    """(sorted seconds, how many there are, how many are no longer than each), of one workload or of all."""
    jobs = recording.jobs
    mine: npt.NDArray[np.bool_]
    if metric == "next_token":
        gaps = recording.token_gaps
        mine = (gaps.workload == workload) | (workload is None)
        ticks, weights = gaps.ticks[mine], gaps.weights[mine]
        order = np.argsort(ticks, kind="stable")
        cumulative = np.cumsum(weights[order])
        return to_second_array(ticks[order]), int(cumulative[-1]) if len(cumulative) else 0, cumulative
    until: TickArray = jobs.first if metric == "first_token" else jobs.finish
    mine = ((jobs.workload == workload) | (workload is None)) & (until >= 0)
    if metric == "latency":
        mine &= jobs.status == COMPLETED
    values = np.sort(to_second_array(until[mine] - jobs.arrival[mine]))
    return values, len(values), np.arange(1, len(values) + 1)


def _time_chart(steps: Steps, unit: str, limit: float | None) -> dict[str, Any]:
    x, mean, peak = steps.sampled(TIME_POINTS)
    # The first point again at the end of the run, so that the last bin has its width.
    x = np.append(x, steps.end / 1e12)
    return {
        "kind": "time",
        "unit": unit,
        "x": _rounded(x),
        "mean": _rounded(np.append(mean, mean[-1])),
        "peak": _rounded(np.append(peak, peak[-1])),
        "limit": limit,
        "limit_text": words.stated(limit, unit) if limit else None,
    }


def _rounded(values: FloatArray) -> list[float | None]:
    """Five significant digits are finer than a pixel, and half the size of the page."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


# The tables


def _bars(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Utilisation bars grouped by SKU; one bar a SKU, with its range, where there are many devices."""
    shares = words.by_sku(devices)
    if len(devices) > MAX_BARS:
        rows = [
            {
                "name": f"{one.count:,} × {one.sku}",
                "value": one.mean,
                "low": one.least,
                "high": one.most,
                "text": words.share(one.mean),
            }
            for one in shares
        ]
        return [{"sku": None, "heading": False, "rows": rows}]
    groups = []
    for one in shares:
        members = [device for device in devices if device["sku"] == one.sku]
        rows = [
            {
                "name": str(device["name"]),
                "value": device["utilisation"],
                "low": None,
                "high": None,
                "text": words.share(device["utilisation"]),
            }
            for device in members
        ]
        # A heading that would only repeat the one name below it is left out.
        alone = one.count == 1 and rows[0]["name"] == one.sku
        groups.append(
            {
                "sku": one.sku,
                "heading": not alone,
                "note": f"{words.share(one.mean)} on average" if one.count > 1 else "",
                "rows": rows,
            }
        )
    return groups


def _sku_rows(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "sku": one.sku,
            "kind": one.kind,
            "count": f"{one.count:,}",
            "utilisation": words.share(one.mean),
            "range": f"{words.share(one.least)} to {words.share(one.most)}" if one.count > 1 else NOTHING,
            "jobs": f"{one.jobs:,}",
            "energy": words.watt_hours(one.energy_j),
            "limit": words.stated(one.power_limit_w, "W"),
            "idle": words.stated(one.idle_power_w, "W"),
        }
        for one in words.by_sku(devices)
    ]


def _fault_rows(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What struck, what became of the jobs, and each fleet entry's share of it; None where no fault is stated."""
    faults = result.get("faults")
    if faults is None:
        return None
    rows = [
        {
            "name": str(entry["name"]),
            "devices": f"{entry['devices']:,}",
            "failures": f"{entry['failures']:,}",
            "down": words.quantity(entry["down_s"], "s") if entry["down_s"] else NOTHING,
            "unreachable": words.quantity(entry["unreachable_s"], "s") if entry["unreachable_s"] else NOTHING,
            "throttled": words.quantity(entry["throttled_s"], "s") if entry["throttled_s"] else NOTHING,
            "availability": words.share(entry["availability"]),
        }
        for entry in faults["entries"]
    ]
    return {"lines": words.fault_lines(result), "rows": rows}


def _device_rows(devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every device, or the busiest and the idlest of a large fleet."""
    shown = list(devices)
    if len(devices) > MAX_DEVICE_ROWS:
        order = sorted(range(len(devices)), key=lambda i: -devices[i]["utilisation"])
        half = MAX_DEVICE_ROWS // 2
        shown = [devices[i] for i in (*order[:half], *order[-half:])]
    rows = [
        {
            "name": str(device["name"]),
            "sku": str(device["sku"]),
            "kind": str(device["kind"]),
            "utilisation": words.share(device["utilisation"]),
            "jobs": f"{device['jobs']:,}",
            "energy": words.watt_hours(device["energy_j"]),
            "limit": words.stated(device.get("power_limit_w"), "W"),
            "idle": words.stated(device.get("idle_power_w"), "W"),
        }
        for device in shown
    ]
    return {"rows": rows, "total": len(devices), "half": MAX_DEVICE_ROWS // 2}


def _workload_rows(workloads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": str(workload["name"]),
            "use": workload.get("use"),
            "completed": f"{workload['jobs']['completed']:,}",
            "arrived": f"{workload['jobs']['arrived']:,}",
            "unfinished": words.unfinished(workload["jobs"]),
            "cells": [
                _cell((workload.get(f"{metric}_s") or {}).get(statistic))
                for metric, statistic in (
                    ("latency", "p50"),
                    ("latency", "p95"),
                    ("latency", "p99"),
                    ("waiting", "p99"),
                    ("first_token", "p99"),
                    ("next_token", "p99"),
                )
            ],
        }
        for workload in workloads
    ]


def _scenario(scenario: Mapping[str, Any]) -> dict[str, Any]:
    text = yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, width=100)
    cut = len(text) > MAX_SCENARIO_CHARACTERS
    return {"text": text[:MAX_SCENARIO_CHARACTERS], "cut": cut, "lines": text.count("\n")}


def _provenance(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every number that entered, by device, with a count of each kind of origin."""
    counts = {word: sum(row["provenance"] == word for row in rows) for word in PROVENANCES}
    devices: dict[str, list[dict[str, Any]]] = {}
    # The assumed ones first: they are what a reader should doubt first, and what must survive a cut.
    ordered = sorted(rows, key=lambda row: -PROVENANCES.index(row["provenance"]))
    for row in ordered[:MAX_PROVENANCE_ROWS]:
        source = str(row.get("source") or "")
        devices.setdefault(str(row["device"]), []).append(
            {
                "parameter": str(row["parameter"]),
                "value": words.in_unit(row["value"], row.get("unit") or "1"),
                "word": row["provenance"],
                "mark": PROVENANCE_MARK[row["provenance"]],
                "range": words.stated_range(row.get("low"), row.get("high"), row.get("unit") or "1"),
                "source": source,
                # Only a plain web address becomes a link: anything else, javascript: included, stays text.
                "link": source if re.fullmatch(r"https?://[^\s\"'<>]+", source) else None,
                "short": _shortened(source),
                "reason": str(row.get("reason") or ""),
            }
        )
    groups = [
        {
            "device": device,
            "rows": devices[device],
            "assumed": sum(row["word"] == "assumed" for row in devices[device]),
        }
        for device in dict.fromkeys(str(row["device"]) for row in rows)
        if device in devices
    ]
    total = len(rows)
    return {
        "total": total,
        "left_out": max(0, total - MAX_PROVENANCE_ROWS),
        "counts": [
            {
                "word": word,
                "mark": PROVENANCE_MARK[word],
                "n": counts[word],
                "percent": counts[word] / total * 100 if total else 0,
                "meaning": PROVENANCE_MEANING[word],
            }
            for word in PROVENANCES
        ],
        "assumed": counts["assumed"],
        "groups": groups,
    }


def _models(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How well each operation is known, by device."""
    devices: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        told = {
            "op": str(row["op"]),
            "basis": MODEL_BASIS[row["basis"]],
            "error": words.share(row["held_out"]),
            "inside": words.share(row["inside"]),
            "width": f"±{words.share(row['half_width'])}" if words.known(row["half_width"]) else words.NOTHING,
            "text": str(row["text"]) + (f"; held back by {row['split']}" if row["split"] else ""),
        }
        if words.known(row["factor"]):
            told["width"] = f"×/÷ {words.number(row['factor'])}"
        devices.setdefault(str(row["device"]), []).append(told)
    return [{"device": device, "rows": told} for device, told in devices.items()]


def _shortened(source: str) -> str:
    """A web address without its scheme, cut in the middle; its end says more than its middle."""
    text = re.sub(r"^https?://(www\.)?", "", source)
    return text if len(text) <= 48 or " " in text else f"{text[:22]}…{text[-24:]}"
