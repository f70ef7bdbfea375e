"""The HTML report of a validation, with model predictions against measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from windtunnel.core.results.data import to_data
from windtunnel.core.results.validation import (
    ChartPoints,
    ConditionsSeen,
    Environment,
    OmittedPoints,
    OperationResult,
    ValidationResult,
)
from windtunnel.report import page
from windtunnel.report.numbers import percent, plural, quantity
from windtunnel.report.page import LegendItem
from windtunnel.report.validation import (
    API_HEADER,
    FIT_HEADER,
    FITTED,
    HEADER,
    api_rows,
    cells,
    fit_notes,
    fit_rows,
    held_out_fits,
    makespan_lines,
    omitted_lines,
    operation_name,
    plain,
    power_line,
    row_line,
    software_line,
    too_large_line,
    unsupported_line,
    verdict,
)

GLOSSARY = (
    ("Error", "modelled time over measured time, minus one"),
    ("MAPE", "mean absolute percentage error: the mean of the absolute errors"),
    ("Median, p90", "50th and 90th percentile of the absolute errors"),
    ("Bias", "mean of the signed errors; positive: the model predicts too long a time"),
    (
        "Noise floor",
        "MAPE that a correct model would show against single measurements, from points that were measured repeatedly",
    ),
    ("Coverage", "share of the measurements inside the model's 90% prediction interval; 90% if the interval is right"),
    ("Bound", "the resource that limits the operation according to the model: launch, memory, compute, link or power"),
    ("Suspect", "a measurement with a stated reason not to use it; it is excluded from all statistics"),
)

_SIZES = {"B": "bytes of the operands"}


@dataclass(frozen=True)
class ValidationReport:
    """What the sections show; see ``render``."""

    results: Sequence[ValidationResult]
    charts: Sequence[ChartPoints]
    about: Environment
    max_mape: float | None
    omitted: Sequence[OmittedPoints]


def render(
    results: Sequence[ValidationResult],
    charts: Sequence[ChartPoints],
    about: Environment,
    max_mape: float | None = None,
    omitted: Sequence[OmittedPoints] = (),
) -> str:
    """Return the validation as a complete HTML document.

    Args:
        results: The comparisons. Names in them may hold any text.
        charts: The points of each comparison.
        about: The environment of the measurements.
        max_mape: The largest MAPE that is accepted, as a fraction; None if there is no limit.
        omitted: The points that were not measured, and why.
    """
    report = ValidationReport(results, charts, about, max_mape, omitted)
    return page.render_page(
        kind="Windtunnel validation",
        title="Models compared with measurements",
        facts=[
            plural(sum(result.n for result in results), "measurement"),
            plural(len({result.device for result in results}), "device"),
            plural(len({result.op for result in results}), "operation"),
        ],
        sections=[part for section in SECTIONS for part in section(report)],
        script="validation.js",
        charts=to_data(report.charts),
        footer=["Formulas: docs/validation.md · all rows: the CSV files and validation.json beside this page"],
    )


def _answer(report: ValidationReport) -> Iterator[Markup]:
    limit = report.max_mape
    above = limit is not None and any(result.mape is None or result.mape > limit for result in report.results)
    yield page.answer("none" if limit is None else "missed" if above else "met", verdict(report.results, limit))


def _all_operations(report: ValidationReport) -> Iterator[Markup]:
    rows = [[result.device, operation_name(result), *cells(result)] for result in report.results]
    table = page.table("Errors of the model relative to the measurements", HEADER, rows, words=(0, 1))
    yield page.section("figures", "All devices and operations", table)


def _apis(report: ValidationReport) -> Iterator[Markup]:
    rows = api_rows(report.results)
    if rows:
        text = "The same operations through each API of a chip, the fastest first. The notes name the implementation."
        table = page.table("Reference points", API_HEADER, rows, words=(0, 1))
        yield page.section("apis", "Comparison of APIs", page.prose(text), table)


def _fits(report: ValidationReport) -> Iterator[Markup]:
    fits = held_out_fits(report.results)
    if not fits:
        return
    rows = fit_rows(fits)
    table = page.table("Errors on the rows that were held out", FIT_HEADER, rows, words=(0, 1)) if rows else None
    notes = page.notes(list(fit_notes(fits)), "")
    yield page.section("fits", "Calibration on one half, errors on the other half", table, notes)


def _details(report: ValidationReport) -> Iterator[Markup]:
    drawn = {(chart.device, chart.op): i for i, chart in enumerate(report.charts)}
    for i, result in enumerate(report.results, 1):
        if isinstance(result, OperationResult):
            yield _operation(result, i, drawn.get((result.device, result.op)), report.charts)


def _operation(result: OperationResult, at: int, index: int | None, charts: Sequence[ChartPoints]) -> Markup:
    """Return the section on one device and operation; ``index`` is the place of its chart."""
    title, model = f"{result.op} on {result.device}", result.model
    text = f"Model: {model.text}. Least certain input: {model.provenance}. Measured: {', '.join(result.sources)}."
    if model.basis == "measured":
        text += f" {FITTED[0].upper()}{FITTED[1:]}."
    excluded = [
        *(f"suspect measurement{row_line(row)}: {row.why}" for row in result.suspect),
        *map(unsupported_line, result.unsupported),
    ]
    remarks = [
        *([software_line(result)] if result.software else []),
        *([] if result.power is None else [power_line(result.power)]),
        *([] if result.too_large is None else [too_large_line(result.too_large, result.op)]),
    ]
    splits = {
        "Bound": [[part.bound, *cells(part.figures)] for part in result.by_bound],
        "Number format": [[part.dtype, *cells(part.figures)] for part in result.by_dtype],
    }
    return page.section(
        f"part-{at}",
        title,
        page.hint(text),
        *([] if index is None else _plots(title, result, index, charts[index])),
        *(page.table(name, [name, *HEADER[2:]], rows) for name, rows in splits.items() if len(rows) > 1),
        page.notes(remarks, ""),
        page.notes(excluded, "Excluded from all statistics"),
        _worst(result),
    )


def _plots(title: str, result: OperationResult, index: int, chart: ChartPoints) -> list[Markup]:
    legend = [LegendItem(bound, dot=min(i, 8)) for i, bound in enumerate(chart.bounds, 1)]
    legend.append(LegendItem("modelled = measured", line="mean", style="stroke: var(--ink); stroke-width: 1.5"))
    if result.noise_floor:
        points = plural(result.noise_points, "repeated point")
        legend.append(LegendItem(f"noise floor {percent(result.noise_floor)}, from {points}", shade="floor"))
    size = _SIZES.get(chart.size_unit, chart.size_unit)
    parts = [
        page.no_script("The plots need JavaScript; the CSV file beside this page contains every row of them."),
        page.legend(legend),
        page.live_line(index),
        page.pair(
            page.figure(
                index,
                "Modelled against measured time",
                f"Modelled against measured time of {title}, on logarithmic axes; a correct model is on the diagonal.",
                tall=True,
                attributes={"data-kind": "scatter"},
            ),
            page.figure(
                index,
                "Residual by size",
                f"Ratio of modelled to measured time of {title}, by {size}.",
                tall=True,
                attributes={"data-kind": "residual", "data-size": size},
            ),
        ),
    ]
    if chart.shown != chart.all:
        sample = f"{chart.shown:,} of {chart.all:,} rows are drawn: evenly by their time, and the ten largest errors."
        parts.append(page.hint(sample))
    return parts


def _worst(result: OperationResult) -> Markup | None:
    if not result.worst:
        return None
    rows = [
        [
            " ".join(f"{key}={plain(value)}" for key, value in row.columns.items()),
            quantity(row.measured_s, "s"),
            quantity(row.modelled_s, "s"),
            percent(row.error, signed=True),
            row.bound,
            "yes" if row.inside else "no",
            row.source + ("" if row.line is None else f", line {row.line:,}"),
        ]
        for row in result.worst
    ]
    header = ["Row", "Measured", "Modelled", "Error", "Bound", "Inside 90% interval", "Source"]
    caption = f"Largest errors of {result.op} on {result.device}"
    table = page.table(caption, header, rows, words=(0, 4, 5, 6), hidden_caption=True)
    return page.details("Largest errors", f"{len(rows)} of {plural(result.n, 'row')}", table, style="gap")


def _makespans(report: ValidationReport) -> Iterator[Markup]:
    lines = list(makespan_lines(report.results))
    if lines:
        yield page.section("makespans", "A scenario on the device and on its model", page.notes(lines, ""))


def _omitted(report: ValidationReport) -> Iterator[Markup]:
    lines = list(omitted_lines(report.omitted, shown=1000))
    if lines:
        yield page.section("omitted", "Not measured", page.notes(lines, ""))


def _environment(report: ValidationReport) -> Iterator[Markup]:
    yield page.section("about", "Environment", page.definitions(list(_environment_rows(report.about))))


def _environment_rows(about: Environment) -> Iterator[tuple[str, str]]:
    rows = (
        ("Command", about.command),
        ("Date", about.date),
        ("Host", about.host),
        ("Driver", about.driver),
        ("Clocks", ", ".join(f"{name} {quantity(value, 'Hz')}" for name, value in about.clocks.items())),
        ("Conditions", "; ".join(f"{name}: {_conditions(seen)}" for name, seen in about.conditions.items())),
        ("Versions", ", ".join(f"{name} {version}" for name, version in about.versions.items())),
    )
    yield from ((name, text) for name, text in rows if text)


def _conditions(seen: ConditionsSeen) -> str:
    """Return a device's clocks, power and temperature, from the lowest to the highest value during the measurement."""
    low, high = seen.lowest, seen.highest
    ranges = (
        ("SM", low.sm_clock_hz, high.sm_clock_hz, "Hz"),
        ("memory", low.memory_clock_hz, high.memory_clock_hz, "Hz"),
        ("power", low.power_w, high.power_w, "W"),
        ("power limit", low.power_limit_w, high.power_limit_w, "W"),
    )
    texts = [
        f"{name} {_span(quantity(least, unit), quantity(most, unit))}"
        for name, least, most, unit in ranges
        if least is not None
    ]
    if low.temperature_c is not None:
        texts.append(f"{_span(f'{low.temperature_c:.0f}', f'{high.temperature_c:.0f}')} °C")
    if high.held_back is not None:
        texts.append(f"clocks limited by {', '.join(high.held_back) or 'nothing'}")
    return ", ".join(texts)


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _glossary(_: ValidationReport) -> Iterator[Markup]:
    yield page.glossary(GLOSSARY)


SECTIONS: Sequence[Callable[[ValidationReport], Iterator[Markup]]] = (
    _answer,
    _all_operations,
    _apis,
    _fits,
    _details,
    _makespans,
    _omitted,
    _environment,
    _glossary,
)
"""The sections in order; each function yields its sections. A new section is one function, listed here."""
