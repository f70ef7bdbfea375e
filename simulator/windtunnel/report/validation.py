"""A validation for people: tables for the terminal, and a page with model against measurement.

Reads the results as `windtunnel validate --format json` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from windtunnel.report.html import _embedded, _environment, _hash, _template_text, _vendored
from windtunnel.report.words import NOTHING, number, plural, printable, quantity, share

_SHOWN = 5
"""Of a kind of note in a terminal."""

HEADER = ("device", "op", "n", "MAPE", "median", "p90", "bias", "noise floor", "in 90%")

GLOSSARY = (
    ("Error", "of a row: modelled over measured, less one"),
    ("MAPE", "mean absolute percentage error: the mean of the errors without their signs"),
    ("Median, p90", "of the errors without their signs: half, nine tenths of the rows are off by no more"),
    ("Bias", "the mean of the errors with their signs: above zero the model says too long"),
    (
        "Noise floor",
        "the MAPE of a model that is right, against single measurements: from points that were measured several times",
    ),
    ("In 90%", "share of the measurements within the model's 90% interval; 90% where the interval is right"),
    ("What limits it", "as the model says: its launch, memory, compute, a link, power"),
    ("Suspect", "a measurement with a reason not to trust it; it enters no figure"),
)


def percent(value: float | None, *, signed: bool = False) -> str:
    """A fraction as a percentage, with its sign if ``signed``."""
    if value is None:
        return NOTHING
    sign = ("+" if value > 0.0 else "-" if value < 0.0 else "") if signed else ""
    return sign + share(abs(value))


def cells(figures: Mapping[str, Any]) -> list[str]:
    """The number of rows and the figures as text, in the order of ``HEADER``."""
    return [
        f"{figures['n']:,}",
        *(percent(figures[key]) for key in ("mape", "median_ape", "p90_ape")),
        percent(figures["bias"], signed=True),
        percent(figures["noise_floor"]),
        percent(figures["coverage"]),
    ]


def table(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for a terminal: each device and operation, and below it each regime where there are several."""
    lines = []
    for one in results:
        lines.append([one["device"], _named(one), *cells(one)])
        if len(one["by_bound"]) > 1:
            lines += [["", f"  {part['bound']}", *cells(part)] for part in one["by_bound"]]
    return list(HEADER), lines


def _named(one: Mapping[str, Any]) -> str:
    """An operation; a makespan by the device too, since several may stand behind one model."""
    return f"makespan, {one['sources'][0]}" if one["op"] == "makespan" else str(one["op"])


def notes(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the figures rest on and what entered none of them. Operations that rest on the same are said together."""
    alike: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for one in results:
        rests = (one["device"], one["model"]["text"], ", ".join(one["sources"][:3]), one["model"]["basis"])
        alike.setdefault(rests, []).append(one)
    for (device, text, sources, basis), those in alike.items():
        yield f"{', '.join(one['op'] for one in those)} on {device}: {text}; measured: {sources}"
        if basis == "measured":
            yield f"  {FITTED}"
        once = [f"{one['op']} {one['n']}" for one in those if one["n"] and one["noise_floor"] is None]
        if once:
            yield f"  each point measured once, so that no floor of noise is known: {', '.join(once)}"
        for one in those:
            for row in one["suspect"][:_SHOWN]:
                yield f"  {one['op']}: suspect{_line(row)}, in no figure: {row['why']}"
            if len(one["suspect"]) > _SHOWN:
                yield f"  {one['op']}: {len(one['suspect']) - _SHOWN} more suspect rows (--format json lists all)"
            for row in one["unsupported"][:_SHOWN]:
                yield f"  {one['op']}: {plural(row['n'], 'row')} that the model refuses{_line(row)}: {row['why']}"


def _line(row: Mapping[str, Any]) -> str:
    return "" if row["line"] is None else f" (line {row['line']})"


FITTED = (
    "rows that the model was fitted to may be among these: their errors are a fit's, not a prediction's "
    "(--calibration none, or --calibrate)"
)

FIT_HEADER = (
    "device",
    "op",
    "fitted",
    "held back",
    "MAPE before",
    "after",
    "bias after",
    "noise floor",
    "in 90% after",
)


def fit_table(fits: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: each fit on the half that it did not see."""
    return list(FIT_HEADER), [
        [
            one["device"],
            one["op"],
            f"{one['fitted']:,}",
            f"{one['held_out']:,}",
            percent(one["before"]["mape"]),
            percent(one["after"]["mape"]),
            percent(one["after"]["bias"], signed=True),
            percent(one["after"]["noise_floor"]),
            percent(one["after"]["coverage"]),
        ]
        for one in fits
        if one["not_fitted"] is None
    ]


def fit_notes(fits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How the halves were made, where the overlay is, and what could not be fitted, by device."""
    refused: dict[str, list[str]] = {}
    for one in fits:
        if one["not_fitted"] is not None:
            refused.setdefault(one["device"], []).append(f"{one['op']} ({one['not_fitted']})")
        else:
            written = f"; overlay {one['overlay']}" if one["overlay"] else ""
            doubt = (
                ""
                if one["calibration"]["improves_on_prior"]
                else "; its own rows left out are answered no better with it"
            )
            yield f"{one['op']} on {one['device']}: {one['split']}{written}{doubt}"
    for device, each in refused.items():
        yield f"not fitted on {device}: {', '.join(each)}"


API_HEADER = ("the same work", "API", "measured", "of the best", "modelled", "clock")


def api_rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The points that every API is asked for, where several APIs of one chip were measured: the quickest first.

    A chip is what stands before the ``@`` of a device's name, its API what stands behind.
    """
    found: dict[tuple[str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for result in results:
        chip, _, api = str(result["device"]).partition("@")
        for one in result.get("reference_points") or ():
            work = " ".join([str(result["op"]), *(_plain(value) for value in one["columns"].values())])
            found.setdefault((chip, work), []).append((api or NOTHING, one))
    rows = []
    for (chip, work), apis in found.items():
        names = [api for api, _ in apis]
        if len(set(names)) < 2:
            continue
        ordered = sorted(apis, key=lambda item: item[1]["measured_s"])
        best_s = ordered[0][1]["measured_s"]
        for api, one in ordered:
            measured, modelled = quantity(one["measured_s"], "s"), quantity(one["modelled_s"], "s")
            times = f"×{number(one['measured_s'] / best_s)}"
            # Two cards of one SKU are told apart.
            label = api if names.count(api) == 1 else f"{api} ({one['source']})"
            rows.append([f"{work} on {chip}", label, measured, times, modelled, one["timer"] or NOTHING])
    return rows


def text(results: Sequence[Mapping[str, Any]], omitted: Sequence[Mapping[str, Any]] = ()) -> str:
    """The results as lines for a terminal. ``omitted``: what was not measured, and why."""
    compared = [one for one in results if "model" in one]
    apis = api_rows(results)
    lines = [*_aligned(*table(results)), *(["", *_aligned(API_HEADER, apis)] if apis else [])]
    lines += ["", *notes(compared), *_spans(results), *_omitted(omitted)]
    fits = [one["calibrated"] for one in results if one.get("calibrated") is not None]
    if fits:
        header, rows = fit_table(fits)
        lines += ["", *(_aligned(header, rows) if rows else []), *fit_notes(fits)]
    return "\n".join(map(printable, lines))


def _spans(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in results:
        if one["op"] == "makespan":
            both = f"{quantity(one['predicted_s'], 's')} by the model, {quantity(one['measured_s'], 's')} measured"
            yield f"makespan of {one['jobs']} jobs on {one['device']} ({one['sources'][0]}): {both}"


def _omitted(omitted: Sequence[Mapping[str, Any]], shown: int = _SHOWN) -> Iterator[str]:
    sources: dict[str, dict[str, int]] = {}
    for one in omitted:
        if one.get("hung"):
            yield f"hung on {one['source']}: {one['why']}"
            continue
        counts = sources.setdefault(one["source"], {})
        counts[one["why"]] = counts.get(one["why"], 0) + one["points"]
    for source, counts in sources.items():
        listed = sorted(counts.items(), key=lambda item: -item[1])
        said = "; ".join(f"{points}: {why}" for why, points in listed[:shown])
        yield f"not measured of {source}: {said}" + (
            f"; and {len(listed) - shown} reasons more" if listed[_SHOWN:] else ""
        )


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in lines: words to the left, figures to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]


def verdict(results: Sequence[Mapping[str, Any]], max_mape: float | None = None) -> str:
    """The answer in one line."""
    errors = [one["mape"] for one in results if one["mape"] is not None]
    if not errors:
        return "There is no measurement to judge by"
    if len(results) == 1:
        one = results[0]
        said = f"{one['op']} on {one['device']} is {percent(one['mape'])} off in the mean"
        if one["noise_floor"] is not None:
            said += f", where the measurements themselves vary by {percent(one['noise_floor'])}"
    else:
        devices = len({one["device"] for one in results})
        of = f"{plural(len({one['op'] for one in results}), 'operation')} on {plural(devices, 'device')}"
        said = f"{of}: {percent(min(errors))} to {percent(max(errors))} off in the mean"
        floors = [one["noise_floor"] for one in results if one["noise_floor"] is not None]
        if floors:
            said += f", where the measurements themselves vary by {percent(min(floors))} to {percent(max(floors))}"
    if max_mape is None:
        return said
    above = sum(one["mape"] is None or one["mape"] > max_mape for one in results)
    return said + (
        f"; {above} of {len(results)} above {percent(max_mape)}" if above else f"; at most {percent(max_mape)}"
    )


def render(
    results: Sequence[Mapping[str, Any]],
    charts: Sequence[Mapping[str, Any]],
    about: Mapping[str, Any],
    max_mape: float | None = None,
    omitted: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The validation as a complete HTML document that loads nothing.

    ``charts``: the points of each comparison; ``about``: the environment; ``omitted``: what was not measured. Names
    in any of them may hold anything.
    """
    scripts = {"uplot": _vendored("uPlot.iife.min.js"), "app": _template_text("validation.js")}
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(_hash(text) for text in scripts.values())}"
    )
    fits = [one["calibrated"] for one in results if one.get("calibrated") is not None]
    above = max_mape is not None and any(one["mape"] is None or one["mape"] > max_mape for one in results)
    drawn = {(chart["device"], chart["op"]): i for i, chart in enumerate(charts)}
    return (
        _environment()
        .get_template("validation.html.j2")
        .render(
            policy=policy,
            scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704 -- our own files
            styles=Markup(_vendored("uPlot.min.css") + _template_text("report.css")),  # noqa: S704 -- our own files
            data=_embedded(list(charts)),
            verdict=verdict(results, max_mape),
            state="none" if max_mape is None else "missed" if above else "met",
            ran=_ran(results),
            header=HEADER,
            rows=[[one["device"], _named(one), *cells(one)] for one in results],
            parts=[_part(one, drawn.get((one["device"], one["op"])), charts) for one in results if "model" in one],
            spans=list(_spans(results)),
            omitted=list(_omitted(omitted, shown=1000)),
            api_header=API_HEADER,
            apis=api_rows(results),
            fit_header=FIT_HEADER,
            fits=fit_table(fits)[1],
            fit_notes=list(fit_notes(fits)),
            about=[(name, text) for name, text in _about(about) if text],
            glossary=GLOSSARY,
        )
    )


def _ran(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        plural(sum(one["n"] for one in results), "measurement"),
        plural(len({one["device"] for one in results}), "device"),
        plural(len({one["op"] for one in results}), "operation"),
    ]


def _about(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Command", about["command"]
    yield "Date", about["date"]
    yield "Host", about["host"]
    yield "Driver", about["driver"]
    yield "Clocks", ", ".join(f"{name} {quantity(value, 'Hz')}" for name, value in about["clocks"].items())
    yield "Conditions", "; ".join(f"{name}: {_conditions(told)}" for name, told in about["conditions"].items())
    yield "Versions", ", ".join(f"{name} {version}" for name, version in about["versions"].items())


def _conditions(told: Mapping[str, Any]) -> str:
    """Clocks, power and heat of a device, from the lowest that was seen to the highest."""
    low, high = told["lowest"], told["highest"]
    names = {"sm_clock_hz": "SM", "memory_clock_hz": "memory", "power_w": "power", "power_limit_w": "power limit"}
    said = [
        f"{words} {_span(quantity(low[name], unit), quantity(high[name], unit))}"
        for name, words in names.items()
        if name in low
        for unit in ("Hz" if name.endswith("_hz") else "W",)
    ]
    if "temperature_c" in low:
        said.append(_span(*(format(one["temperature_c"], ".0f") for one in (low, high))) + " °C")
    if "held_back" in high:
        said.append(f"held back by {', '.join(high['held_back']) or 'nothing'}")
    return ", ".join(said)


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _part(one: Mapping[str, Any], chart: int | None, charts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the page says of one device and operation."""
    drawn = None if chart is None else charts[chart]
    return {
        "title": f"{one['op']} on {one['device']}",
        "model": one["model"],
        "sources": one["sources"],
        "rows": plural(one["n"], "row"),
        "floor": one["noise_floor"] and percent(one["noise_floor"]),
        "floor_points": plural(one["noise_points"], "point"),
        "chart": chart,
        "bounds": [] if drawn is None else drawn["bounds"],
        "thinned": ""
        if drawn is None or drawn["shown"] == drawn["all"]
        else f"{drawn['shown']:,} of {drawn['all']:,} rows are drawn: evenly by their time, and the ten furthest off",
        "size": "" if drawn is None else _SIZES.get(drawn["size_unit"], drawn["size_unit"]),
        "splits": [
            ("What limits it", [[part["bound"], *cells(part)] for part in one["by_bound"]]),
            ("Number format", [[part["dtype"], *cells(part)] for part in one["by_dtype"]]),
        ],
        "worst": [
            [
                " ".join(f"{key}={_plain(value)}" for key, value in row["columns"].items()),
                quantity(row["measured_s"], "s"),
                quantity(row["modelled_s"], "s"),
                percent(row["error"], signed=True),
                row["bound"],
                "yes" if row["inside"] else "no",
                row["source"] + ("" if row["line"] is None else f", line {row['line']:,}"),
            ]
            for row in one["worst"]
        ],
        "fitted": FITTED if one["model"]["basis"] == "measured" else "",
        "left_out": [
            *(f"suspect{_line(row)}: {row['why']}" for row in one["suspect"]),
            *(f"{plural(row['n'], 'row')} refused{_line(row)}: {row['why']}" for row in one["unsupported"]),
        ],
    }


_SIZES = {"B": "bytes of the operands"}


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
