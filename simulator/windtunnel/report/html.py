"""The report: one HTML file that opens offline, answers first and shows where every number came from.

The page may load nothing: its Content-Security-Policy forbids every request and allows exactly the two scripts
pasted into it, by their hashes, so that a name from somebody's scenario can never run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from windtunnel.core.provenance import PROVENANCES
from windtunnel.core.result import Recording, distribution
from windtunnel.report import words
from windtunnel.report.charts import charts
from windtunnel.report.words import METRICS, NOTHING, STATISTICS

MAX_BARS = 24
"""Above this many devices the utilisation chart shows fleet entries instead."""

MAX_DEVICE_ROWS = 200
MAX_PROVENANCE_ROWS = 2_000
MAX_SCENARIO_CHARACTERS = 60_000

GLOSSARY = (
    ("Latency", "from a job's arrival to its finish, completed jobs only"),
    ("Waiting", "from a job's arrival until a device takes it up"),
    ("Time to first token", "from a job's arrival until its first token has left"),
    ("Inter-token latency", "between one token of a job and the following one"),
    ("p50, p95, p99", "the time within which 50, 95 or 99% of them stayed"),
    ("95% interval", "where the value of a far longer run lies, with 95% confidence"),
    ("Throughput", "completed jobs divided by the time simulated"),
    ("Utilisation", "the share of the time in which at least one engine of a device worked"),
    ("Average and peak power", "of the whole fleet, idle power included; the peak is the highest instant"),
    ("Limit", "the most the fleet's devices may draw together"),
    ("Budget", "the most the scheduler lets the whole fleet draw at any time; work waits for it"),
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
    "transfer": "measurements of other devices",
    "formula": "formula and published constants",
}


def render(result: Mapping[str, Any], recording: Recording) -> str:
    """The report of one run as a complete HTML document.

    ``result`` is the content of result.json (SI units); the curves come from ``recording`` (ticks). Names in
    either may hold anything: they are escaped wherever they are shown.
    """
    drawn, figures = charts(result, recording)
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
        data=_embedded(drawn),
        figures=figures,
        name=str(result["name"]),
        description=result.get("description"),
        ran=_ran(result),
        verdict=words.verdict(result["targets"]),
        state=_state(result["targets"]),
        targets=[_target(target) for target in result["targets"]],
        tiles=_tiles(result),
        times=_times(result),
        times_of=_times_of(result),
        sureness=words.sureness(result),
        unstable=words.no_average(result),
        cost=_cost(result),
        bars=_bars(result["devices"]),
        never_started=words.never_started(result),
        entries=_entry_rows(result["devices"]),
        devices=_device_rows(result["devices"]),
        faults=_fault_rows(result),
        real=_real_rows(result),
        workloads=_workload_rows(result["workloads"]),
        scenario=_scenario(result["scenario"]),
        provenance=_provenance(result.get("provenance") or ()),
        models=_models(result.get("model_accuracy") or ()),
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
    lines = [words.target_line(target) for target in targets]
    # One that is surely missed settles it; one that is not sure leaves it open.
    if any(line.state == "missed" for line in lines):
        return "missed"
    return "met" if all(line.sure for line in lines) else "unsure"


def _target(target: Mapping[str, Any]) -> dict[str, Any]:
    line = words.target_line(target)
    # The limit's tick stands at two thirds of the track, so that a miss has room to show how far it went.
    reach = None if line.reach is None else min(max(line.reach, 0.0), 1.5) / 1.5 * 100
    return {"line": line, "reach": reach, "beyond": line.reach is not None and line.reach > 1.5}


def _ran(result: Mapping[str, Any]) -> list[str]:
    devices = result["devices"]
    skus = {str(device["sku"]) for device in devices}
    fleet = words.plural(len(devices), "device")
    repeated, span = result.get("replications") or 1, words.stated(result["simulated_s"], "s")
    return [
        words.plural(result["jobs"]["arrived"], "job"),
        f"{words.plural(repeated, 'replication')} of {span}" if repeated > 1 else f"{span} simulated",
        f"{fleet} of {len(skus)} SKUs" if len(skus) > 1 else " ".join([fleet, *(f"({sku})" for sku in skus)]),
        f"seed {result['seed']}",
    ]


def _tiles(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """The key figures: a label, a value, and one line that puts the value in proportion."""
    jobs, latency, unstable = result["jobs"], result["latency_s"], words.no_average(result)
    completed = jobs["completed"]
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
        tile(f"Latency {name}", meaning, value, f"95% interval {between}" if between else unstable or "")
    tile("Jobs completed", "", f"{completed:,}", f"of {jobs['arrived']:,}", *words.unfinished(jobs))
    tokens_per_s = (result.get("serving") or {}).get("output_tokens_per_s")
    tokens = words.rate(tokens_per_s, "tokens") if tokens_per_s is not None else ""
    tile("Throughput", "Throughput", words.rate(result["throughput_per_s"], "jobs"), tokens)
    hourly = result.get("cost_usd_per_h")
    if result.get("cost_usd") is None:
        tile("Cost", "Cost", NOTHING, "no price is known")
    else:
        tile(
            "Cost", "Cost", words.usd(result["cost_usd"]), f"{words.usd(hourly)} an hour" if hourly is not None else ""
        )
    average = result["average_power_w"]
    limit, said = result.get("power_limit_w"), "the devices' limit"
    if result.get("power_budget") is not None:
        limit, said = result["power_budget"]["normal_w"], "the budget"
    of_limit = f"{words.share(average / limit)} of {said}" if limit else ""
    tile("Average power", "Average and peak power", words.quantity(average, "W"), of_limit)
    peak = words.quantity(result["peak_power_w"], "W")
    limits = words.power_limits(result)
    tile("Peak power", "Average and peak power", peak, *limits)
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
        timed = distribution(result, metric)
        if timed is not None:
            cells = [_cell(timed.get(statistic)) for statistic in STATISTICS]
            rows.append({"heading": heading, "meaning": MEANING[heading], "cells": cells})
    return rows


def _times_of(result: Mapping[str, Any]) -> str:
    """Which jobs the times are of."""
    cut = (result.get("statistics") or {}).get("warmup_jobs")
    if isinstance(cut, list):
        return "all jobs but each replication's warm-up" if any(cut) else "all jobs"
    return f"all jobs but the first {cut:,}, the warm-up" if cut and words.no_average(result) is None else "all jobs"


def _cell(statistic: Mapping[str, Any] | None) -> dict[str, str]:
    value = (statistic or {}).get("value")
    return {
        "value": words.quantity(value, "s"),
        "interval": words.interval(statistic) or ("no interval" if words.known(value) else ""),
    }


def _cost(result: Mapping[str, Any]) -> list[tuple[str, str, str]] | None:
    """What it costs, in the units a budget is made in; None where a price is missing."""
    total, hourly = result.get("cost_usd"), result.get("cost_usd_per_h")
    if total is None:
        return None
    each = words.per_job(total, result)
    fleet = "the fleet as it was rented" if result.get("autoscale") else "the whole fleet"
    rows = [("This run", words.usd(total), f"{words.stated(result['simulated_s'], 's')} of {fleet}")]
    if hourly is not None:
        of_hour = "on average, busy or not" if result.get("autoscale") else "the fleet's price, busy or not"
        rows.append(("An hour", words.usd(hourly), of_hour))
        rows.append(("A year", words.usd(round(hourly * 8760)).replace(".00", ""), "8,760 hours at that price"))
    if each is not None:
        rows.append(("A million jobs", words.usd(each * 1e6), "at this run's throughput"))
    tokens = (result.get("serving") or {}).get("output_tokens_per_s")
    if tokens:
        made = tokens * result["simulated_s"]
        rows.append(("A million tokens", words.usd(total / made * 1e6), "at this run's token rate"))
    return rows


def _notes(result: Mapping[str, Any]) -> list[str]:
    notes = words.notes_beside_figures(result)
    repeated = result.get("replications") or 1
    if repeated > 1:
        notes.insert(
            0,
            f"{repeated} replications: job counts are their sum, other figures (devices' too) their mean, intervals "
            "lie between them; curves show the first.",
        )
    return notes


# The tables


def _bars(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Utilisation bars grouped by fleet entry; one bar an entry, with its range, where there are many devices."""
    shares = words.by_entry(devices)
    if len(devices) > MAX_BARS:
        rows = [
            {
                "name": f"{one.count:,} × {one.label}",
                "value": one.mean,
                "low": one.least,
                "high": one.most,
                "text": words.share(one.mean),
            }
            for one in shares
        ]
        return [{"entry": None, "heading": False, "rows": rows}]
    groups = []
    for one in shares:
        members = [device for device in devices if words.entry_of(device) == one.name]
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
        alone = one.count == 1 and rows[0]["name"] == one.label
        groups.append(
            {
                "entry": one.label,
                "heading": not alone,
                "note": f"{words.share(one.mean)} on average" if one.count > 1 else "",
                "rows": rows,
            }
        )
    return groups


def _entry_rows(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "name": one.name,
            "sku": one.sku,
            "kind": one.kind,
            "count": f"{one.count:,}",
            "utilisation": words.share(one.mean),
            "range": f"{words.share(one.least)} to {words.share(one.most)}" if one.count > 1 else NOTHING,
            "jobs": f"{one.jobs:,}",
            "energy": words.watt_hours(one.energy_j),
            "limit": words.quantity(one.power_limit_w, "W"),
            "idle": words.quantity(one.idle_power_w, "W"),
        }
        for one in words.by_entry(devices)
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


def _real_rows(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """What each device of this host was measured to take, beside what its model says of the same jobs."""
    return [
        {
            "name": str(one["name"]),
            "device": f"{one['real']}, {one['label']}",
            "operations": f"{one['operations']:,}" + (f", {len(one['failures']):,} failed" if one["failures"] else ""),
            "measured": words.quantity(one["measured_s"], "s"),
            "modelled": words.quantity(one["modelled_s"], "s"),
            "ratio": f"×{words.number(one['measured_s'] / one['modelled_s'])}" if one["modelled_s"] else NOTHING,
            "model": str(one["model"]),
            "timer": ", ".join(one.get("timer") or ()) or NOTHING,
            "checked": words.share(one.get("worst_error_share")),
        }
        for one in result.get("real") or ()
    ]


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
            "limit": words.quantity(device.get("power_limit_w"), "W"),
            "idle": words.quantity(device.get("idle_power_w"), "W"),
        }
        for device in shown
    ]
    return {"rows": rows, "total": len(devices), "half": MAX_DEVICE_ROWS // 2}


def _workload_rows(workloads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": str(workload["name"]),
            "use_case": workload.get("use_case"),
            "completed": f"{workload['jobs']['completed']:,}",
            "arrived": f"{workload['jobs']['arrived']:,}",
            "unfinished": words.unfinished(workload["jobs"]),
            "cells": [
                _cell((distribution(workload, metric) or {}).get(statistic))
                for metric, statistic in (
                    ("latency", "p50"),
                    ("latency", "p95"),
                    ("latency", "p99"),
                    ("waiting", "p99"),
                    ("ttft", "p99"),
                    ("itl", "p99"),
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
            "error": words.share(row["cross_validation_error"]),
            "inside": words.share(row["interval_coverage"]),
            "width": f"±{words.share(row['interval_half_width'])}"
            if words.known(row["interval_half_width"])
            else words.NOTHING,
            "text": str(row["text"])
            + (f"; held back by {row['cross_validation_groups']}" if row["cross_validation_groups"] else ""),
        }
        if words.known(row["error_factor"]):
            told["width"] = f"×/÷ {words.number(row['error_factor'])}"
        devices.setdefault(str(row["device"]), []).append(told)
    return [{"device": device, "rows": told} for device, told in devices.items()]


def _shortened(source: str) -> str:
    """A web address without its scheme, cut in the middle; its end says more than its middle."""
    text = re.sub(r"^https?://(www\.)?", "", source)
    return text if len(text) <= 48 or " " in text else f"{text[:22]}…{text[-24:]}"
