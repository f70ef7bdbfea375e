"""A plan for people: a table to act on in the terminal, and one HTML file with the front and the load curve.

Reads the plan as `windtunnel plan --format json` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from markupsafe import Markup

from windtunnel.core.units import parse_unit
from windtunnel.report import words
from windtunnel.report.html import _embedded, _environment, _hash, _template_text, _vendored
from windtunnel.report.words import NOTHING, printable, quantity, share

_WIDTH = 110
_WIDEST = 120
"""Of a table in a terminal."""

PROOFS = {
    "exhaustive": "every {less}fleet was simulated or is ruled out by the bound",
    "monotone": "every {less}fleet was simulated, is ruled out by the bound, or is part of a larger one that failed",
    "open": "as many fleets were simulated as were allowed, and {less}ones are left",
}


_LESS = {"cost": "cheaper", "power": "lower-power", "carbon": "lower-carbon"}


def _proof(plan: Mapping[str, Any]) -> str:
    """How far nothing better is left; where no fleet was found every one is meant."""
    less = f"{_LESS[plan['objective']]} " if plan["fleets"] else ""
    return PROOFS[plan["search"]["proof"]].format(less=less or ("other " if plan["search"]["proof"] == "open" else ""))


def text(plan: Mapping[str, Any]) -> str:
    """The plan as lines for a terminal."""
    lines = [printable(f"{plan['name']}: {verdict(plan)}"), ""]
    if plan["fleets"]:
        lines += _table(plan["fleets"])
    if plan["inconclusive"]:
        lines += [*([""] if plan["fleets"] else []), "Cannot be told with confidence:", *_table(plan["inconclusive"])]
    for line in _bounds(plan):
        lines += wrap(line, width=_WIDTH, subsequent_indent=" " * 9) or [""]
    lines.append("")
    for sentence in plan["explanation"]["sentences"]:
        lines += wrap(printable(_signs(sentence)), width=_WIDTH, subsequent_indent="  ")
    for note in plan["notes"]:
        lines += wrap(printable(f"note: {note}"), width=_WIDTH, subsequent_indent="  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def verdict(plan: Mapping[str, Any]) -> str:
    """The answer in one line."""
    if not plan["fleets"] and not plan["inconclusive"]:
        return "no fleet meets the targets"
    best = (plan["fleets"] or plan["inconclusive"])[0]
    targets = len(best["targets"])
    every = "the target" if targets == 1 else "both targets" if targets == 2 else f"all {targets} targets"
    if not plan["fleets"]:
        return f"no fleet can be confirmed to meet {every}; the values alone would let {best['text']} pass"
    spare = f", with {plan['spare']} of any entry out" if plan["spare"] else ""
    return f"{best['text']} meets {every} with {plan['confidence'] * 100:.3g}% confidence{spare}"


def _signs(text: object) -> str:
    return str(text).replace("<=", "≤").replace(">=", "≥")


def _table(fleets: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a fleet; where that would be too wide, a line for each of its targets below it."""
    lines = _aligned(rows_of(fleets))
    if max(map(len, lines)) <= _WIDEST:
        return lines
    blocks: list[str] = []
    targets = fleets[0]["targets"]
    width = max(len(_signs(t["text"])) for t in targets)
    values = max(len(measured(t)) for fleet in fleets for t in fleet["targets"])
    head, *rows = _aligned([row[: len(row) - 2 * len(targets)] for row in rows_of(fleets)])
    blocks.append(head)
    for row, fleet in zip(rows, fleets, strict=True):
        blocks.append(row)
        for target in fleet["targets"]:
            left = "" if target["headroom"] is None else f"  {share(target['headroom'])} left"
            blocks.append(printable(f"    {_signs(target['text']):<{width}}  {measured(target):<{values}}{left}"))
    return blocks


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            printable(cell).ljust(w) if i == 0 else printable(cell).rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _page_rows(fleets: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """As ``rows_of``; with more than two targets each has a row, for a page is no wider than so much."""
    rows = rows_of(fleets)
    targets = len(fleets[0]["targets"]) if fleets else 0
    if targets <= 2:
        return rows
    fixed = len(rows[0]) - 2 * targets
    found = [[*rows[0][:fixed], "target", "value", "left"]]
    for row in rows[1:]:
        for i in range(targets):
            value, left = row[fixed + 2 * i : fixed + 2 * i + 2]
            found.append([*(row[:fixed] if i == 0 else [""] * fixed), rows[0][fixed + 2 * i], value, left])
    return found


def rows_of(fleets: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A header and one row a fleet: what it is, costs and draws, and for each target the value and what is left."""
    header = ["fleet", "cost", "power"]
    carbon = fleets[0]["carbon_kg_per_h"] is not None
    if carbon:
        header.append("carbon")
    for target in fleets[0]["targets"]:
        header += [_signs(target["text"]), "left"]
    rows = [header]
    for fleet in fleets:
        row = [fleet["text"], f"{fleet['cost_usd_per_h']:,.2f} USD/h", quantity(fleet["power_w"], "W")]
        if carbon:
            row.append(f"{fleet['carbon_kg_per_h']:.3g} kg/h")
        for target in fleet["targets"]:
            row += [measured(target), NOTHING if target["headroom"] is None else share(target["headroom"])]
        rows.append(row)
    return rows


def measured(target: Mapping[str, Any]) -> str:
    """A target's value with its interval."""
    value, unit = target["value"], target["unit"]
    if value is None:
        return NOTHING
    # What has no unit is a share.
    factor, unit = (1.0, "%") if unit == "1" else (parse_unit(unit).factor, unit)

    def shown(value: float) -> str:
        return share(value) if unit == "%" else quantity(value * factor, unit)

    if target["interval_source"] in ("run", "replications") and target["low"] != target["high"]:
        low, high = target["low"], target["high"]
        if unit == "%":
            return f"{share(value)} ({share(low)[:-1]} to {share(high)})"
        return f"{shown(value)} ({words.spread(low * factor, high * factor, unit)})"
    return shown(value) + (" (no interval)" if target["interval_source"] == "none" else "")


_LEAST = {"cost": "cost", "power": "draw", "carbon": "emit"}
_KEYS = {"cost": "cost_usd_per_h", "power": "power_w", "carbon": "carbon_kg_per_h"}


def _amount(value: float, unit: str) -> str:
    return quantity(value, "W") if unit == "W" else f"{value:,.2f} {unit}" if unit == "USD/h" else f"{value:.3g} {unit}"


def _bounds(plan: Mapping[str, Any]) -> list[str]:
    """What no fleet can do better than, in the objective's own unit, how much was looked at, and the curve's turn."""
    bound, objective = plan["lower_bound"], plan["objective"]
    lines = [""] if plan["fleets"] or plan["inconclusive"] else []
    if bound["objective"] is None:
        lines.append("bound    no fleet of these candidates can meet the targets, whatever its counts within `max`")
    else:
        unit = bound["objective_unit"]
        average = "" if objective == "cost" else " on average"
        line = f"bound    no fleet can {_LEAST[objective]} less than {_amount(bound['objective'], unit)}{average}"
        if plan["gap"] is not None:
            best = _amount(plan["fleets"][0][_KEYS[objective]], unit)
            line += f", which leaves at most {share(plan['gap'])} of the best one's {best} to be saved"
        lines.append(line)
        if objective != "cost" and bound["cost_usd_per_h"] is not None:
            lines.append(f"rent     no fleet can cost less than {bound['cost_usd_per_h']:,.2f} USD/h")
    lines.append(
        f"elastic  renting each device only while it works would cost {bound['autoscaler_usd_per_h']:,.2f} USD/h on "
        "average; no autoscaling can cost less"
    )
    search = plan["search"]
    lines.append(
        f"search   {words.plural(search['simulated_fleets'], 'fleet')} simulated, "
        f"{words.plural(search['simulations'], 'run')} in all with the explanation"
    )
    curve = plan["curve"]
    if curve is not None:
        first, last = curve["points"][0]["load"], curve["points"][-1]["load"]
        turn = f"no sharp bend from {first:.0%} to {last:.0%} of the load"
        if curve["knee"] is not None:
            turn = f"turns up at {curve['knee']:.0%} of the load, the knee of its curve"
        lines.append(f"curve    {curve['of'].replace('_', ' ')} of the best: {turn}")
    return lines


def render(plan: Mapping[str, Any]) -> str:
    """The plan as a complete HTML document that loads nothing."""
    scripts = {"uplot": _vendored("uPlot.iife.min.js"), "app": _template_text("plan.js")}
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(_hash(script) for script in scripts.values())}"
    )
    header, *rows = _page_rows(plan["fleets"]) if plan["fleets"] else [[]]
    unconfirmed_header, *unconfirmed = _page_rows(plan["inconclusive"]) if plan["inconclusive"] else [[]]
    curve = plan["curve"]
    return (
        _environment()
        .get_template("plan.html.j2")
        .render(
            policy=policy,
            scripts={name: Markup(script) for name, script in scripts.items()},  # noqa: S704 -- our own files
            styles=Markup(_vendored("uPlot.min.css") + _template_text("report.css")),  # noqa: S704 -- our own files
            data=_embedded(_charts(plan)),
            plan=plan,
            sentences=[_signs(sentence) for sentence in plan["explanation"]["sentences"]],
            verdict=verdict(plan),
            header=header,
            rows=rows,
            unconfirmed=unconfirmed,
            unconfirmed_header=unconfirmed_header,
            bounds=[line.split(None, 1) for line in _bounds(plan) if line],
            front=_met_rows(plan),
            time=plan["time"],
            continuous=_continuous(plan),
            curve=None if curve is None else {**curve, "rows": [_point(p) for p in curve["points"]]},
            knee=None if curve is None or curve["knee"] is None else f"{curve['knee']:.0%}",
            proof=_proof(plan),
            simulated=[
                [
                    f["text"],
                    f"{f['cost_usd_per_h']:,.2f} USD/h",
                    share(f["min_load"]),
                    "meets all" if f["met"] else _signs("; ".join(f["violations"])),
                ]
                for f in sorted(plan["simulated"], key=lambda f: (f["cost_usd_per_h"], f["text"]))
            ],
        )
    )


def _continuous(plan: Mapping[str, Any]) -> bool:
    """Whether sequences join and leave a batch that goes on, so that a device is busy with one of them already."""
    policy = plan["scenario"]["policy"]
    batch = policy.get("batch") if isinstance(policy, dict) else None
    return batch is not None and batch["kind"] == "continuous"


def _met(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fleets that meet everything, the cheapest first: what the charts and their table show."""
    met = (f for f in plan["simulated"] if f["met"] and f["time_s"] is not None)
    return sorted(met, key=lambda f: (f["cost_usd_per_h"], f["text"]))


def _met_rows(plan: Mapping[str, Any]) -> list[list[str]]:
    best = {f["text"] for f in plan["front"]}
    return [
        [
            fleet["text"],
            f"{fleet['cost_usd_per_h']:,.2f} USD/h",
            quantity(fleet["power_w"], "W"),
            quantity(fleet["time_s"], "s"),
            "no" if fleet["text"] in best else "yes",
        ]
        for fleet in _met(plan)
    ]


def _point(point: Mapping[str, Any]) -> list[str]:
    said = {"meets": "yes", "unknown": "cannot be told", "fails": "no"}[point["verdict"]]
    said += "" if point["keeps_up"] else ", and it falls behind"
    return [
        f"{point['load']:.0%}",
        quantity(point["value_s"], "s"),
        words.spread(point["low_s"], point["high_s"], "s"),
        share(point["utilisation"]),
        share(point["min_load"]),
        said,
    ]


def _charts(plan: Mapping[str, Any]) -> dict[str, Any]:
    charts: dict[str, Any] = {}
    met = _met(plan)
    best = {f["text"] for f in plan["front"]}
    for name, key, unit, title in (
        ("time", "time_s", "s", plan["time"][0].upper() + plan["time"][1:]),
        ("power", "power_w", "W", "Average power"),
    ):
        if met:
            charts[name] = {
                "kind": "front",
                "x": [f["cost_usd_per_h"] for f in met],
                "front": [f[key] if f["text"] in best else None for f in met],
                "other": [None if f["text"] in best else f[key] for f in met],
                "names": [f["text"] for f in met],
                "bound": plan["lower_bound"]["cost_usd_per_h"],
                "unit": unit,
                "title": title,
            }
    curve = plan["curve"]
    if curve is not None:
        charts["curve"] = {
            "kind": "curve",
            "title": curve["of"][0].upper() + curve["of"][1:],
            "x": [p["load"] for p in curve["points"]],
            "value": [p["value_s"] for p in curve["points"]],
            "low": [p["low_s"] for p in curve["points"]],
            "high": [p["high_s"] for p in curve["points"]],
            "limit": curve["limit_s"],
            "knee": curve["knee"],
        }
    return charts
