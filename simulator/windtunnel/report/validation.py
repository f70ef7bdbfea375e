"""The result of a validation for a terminal: the errors of the models, and what they are based on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windtunnel.core.results.validation import (
    CalibratedResult,
    ComparedRow,
    ErrorFigures,
    HeldOutFit,
    MakespanResult,
    OmittedPoints,
    OperationResult,
    PowerFigures,
    ReferencePoint,
    SuspectRow,
    TooLarge,
    UnsupportedPart,
    ValidationResult,
)
from windtunnel.core.step_op import PREDICTED
from windtunnel.report.numbers import NOTHING, number, percent, plural, printable, quantity
from windtunnel.report.text import line_ranges, table_lines

_SHOWN = 5
"""Notes of one kind that are shown in a terminal."""
_OPERATIONS = "{operations}"
"""Stands for the name of an operation in a reason that several operations share."""
_WORST, _FAR = 3, 0.5
"""The number of rows with the largest errors that are shown, and the relative error from which they are."""

HEADER = ("device", "op", "n", "MAPE", "median", "p90", "bias", "noise floor", "coverage")


def cells(figures: ErrorFigures) -> list[str]:
    """Return the number of rows and the error statistics as text, in the order of ``HEADER``."""
    return [
        f"{figures.n:,}",
        *map(percent, (figures.mape, figures.median_ape, figures.p90_ape)),
        percent(figures.bias, signed=True),
        percent(figures.noise_floor),
        percent(figures.coverage),
    ]


def table(results: Sequence[ValidationResult]) -> list[list[str]]:
    """Return a header and rows: each device and operation, and below it each bound if there are several."""
    rows = [list(HEADER)]
    for result in results:
        rows.append([result.device, operation_name(result), *cells(result)])
        if len(result.by_bound) > 1:
            rows += [["", f"  {part.bound}", *cells(part.figures)] for part in result.by_bound]
    return rows


def operation_name(result: ValidationResult) -> str:
    """Return the operation; for a makespan with its device, since several devices may share one model."""
    return f"makespan, {result.sources[0]}" if isinstance(result, MakespanResult) else result.op


def notes(results: Sequence[OperationResult]) -> Iterator[str]:
    """Yield the models and measurements behind the errors, and the rows that are excluded from them.

    Operations with the same model and measurements share a line.
    """
    groups: dict[tuple[str, str, str, str], list[OperationResult]] = {}
    for result in results:
        model = result.model
        key = (result.device, model.text, ", ".join(result.sources[:3]), model.basis)
        groups.setdefault(key, []).append(result)
    for (device, text, sources, basis), members in groups.items():
        yield f"{', '.join(result.op for result in members)} on {device}: {text}; measured: {sources}"
        if basis == "measured":
            yield f"  {FITTED}"
        once = [f"{result.op} {result.n}" for result in members if result.n and result.noise_floor is None]
        if once:
            yield f"  no noise floor, because each point was measured once: {', '.join(once)}"
        for result in members:
            yield from (f"  {result.op}: {line}" for line in _result_notes(result))


def _result_notes(result: OperationResult) -> Iterator[str]:
    """Yield the largest errors, the errors of power, and the rows that were left out or are too large."""
    if result.software:
        yield software_line(result)
    far = [row for row in result.worst if not row.inside or abs(row.error) > _FAR]
    yield from (f"large error of time: {_error_line(row, result.op)}" for row in far[:_WORST])
    if result.power is not None:
        yield power_line(result.power)
    for row in result.suspect[:_SHOWN]:
        work = "" if row.line else f" ({' '.join(map(plain, row.columns.values()))})"
        yield f"suspect measurement{work or row_line(row)}, excluded from all statistics: {row.why}"
    if len(result.suspect) > _SHOWN:
        yield f"{len(result.suspect) - _SHOWN} more suspect measurements (--format json lists all)"
    yield from map(unsupported_line, result.unsupported[:_SHOWN])
    if hidden := sum(part.n for part in result.unsupported[_SHOWN:]):
        yield f"{plural(hidden, 'more unsupported row')} left out (--format json lists all)"
    if result.too_large is not None:
        yield too_large_line(result.too_large, result.op)


def _error_line(row: ComparedRow, op: str) -> str:
    defaults = {column.name: column.default for column in PREDICTED.find(op).all_columns()}
    work = " ".join(f"{name}={plain(value)}" for name, value in row.columns.items() if value != defaults[name])
    modelled, measured = quantity(row.modelled_s, "s"), quantity(row.measured_s, "s")
    return f"{work}{row_line(row)}: modelled {modelled}, measured {measured} ({percent(row.error, signed=True)})"


def row_line(row: ComparedRow | SuspectRow) -> str:
    """Return the file and the line that a row comes from, in parentheses."""
    return "" if row.line is None else f" ({row.file}:{row.line})" if row.file else f" (line {row.line})"


def software_line(result: OperationResult) -> str:
    """Return that the measured devices are software, whose times say nothing about the device of the model."""
    names = f"{', '.join(result.software)} {'is' if len(result.software) == 1 else 'are'}"
    return f"{names} software on this host's processor: its times tell nothing about a {result.device}"


def power_line(power: PowerFigures) -> str:
    """Return the errors of the predicted power in one line."""
    text = (
        f"power of {plural(power.n, 'row')}: MAPE {percent(power.mape)}, bias {percent(power.bias, signed=True)}, "
        f"{percent(power.coverage)} within a factor of {number(power.error_factor)}"
    )
    return f"{text}, which 90% should be ({power.provenance})"


def unsupported_line(part: UnsupportedPart) -> str:
    """Return which rows the model does not support, and why. The other rows are compared."""
    return f"{plural(part.n, 'unsupported row')} left out{_places(part.file, part.lines, part.n)}: {part.why}"


def too_large_line(part: TooLarge, op: str) -> str:
    """Return which rows take more memory than there is."""
    step = "the sequences take more memory than the weights leave on the group"
    what = step if op == "step" else "the operands exceed the memory of the device"
    rows = f"{plural(part.n, 'row')}{_places(part.file, part.lines, part.n)}"
    return f"{rows}: {what}; compared with the time of devices with enough memory"


def _places(file: str, lines: Sequence[int], n: int) -> str:
    if not lines:
        return ""
    more = f" and {n - len(lines):,} more" if n > len(lines) else ""
    return f" ({file}:{lines[0]})" if n == 1 and file else f" ({file + ' ' if file else ''}{line_ranges(lines)}{more})"


FITTED = (
    "the model may have been fitted to some of these rows, so these errors are not pure prediction errors "
    "(use --calibration none, or --calibrate)"
)

FIT_HEADER = (
    "device",
    "op",
    "fitted",
    "held out",
    "MAPE before",
    "after",
    "bias after",
    "noise floor",
    "coverage after",
)


def held_out_fits(results: Sequence[ValidationResult]) -> list[HeldOutFit]:
    """Return the fits to half of the rows."""
    return [
        result.calibrated
        for result in results
        if isinstance(result, CalibratedResult) and result.calibrated is not None
    ]


def fit_rows(fits: Sequence[HeldOutFit]) -> list[list[str]]:
    """Return a row for each fit, with its errors on the half of the rows that it did not use."""
    return [
        [
            fit.device,
            fit.op,
            f"{fit.fitted:,}",
            f"{fit.held_out:,}",
            percent(fit.before.mape),
            percent(fit.after.mape),
            percent(fit.after.bias, signed=True),
            percent(fit.after.noise_floor),
            percent(fit.after.coverage),
        ]
        for fit in fits
        if fit.before is not None and fit.after is not None
    ]


def fit_notes(fits: Sequence[HeldOutFit]) -> Iterator[str]:
    """Yield how the rows were split, where the overlay is, and what could not be fitted, by device."""
    not_fitted: dict[str, list[str]] = {}
    for fit in fits:
        if fit.calibration is None:
            not_fitted.setdefault(fit.device, []).append(f"{fit.op} ({fit.not_fitted})")
        else:
            written = f"; overlay {fit.overlay}" if fit.overlay else ""
            improves = fit.calibration.improves_on_prior
            doubt = "" if improves else "; cross-validation shows no improvement over the uncalibrated model"
            yield f"{fit.op} on {fit.device}: {fit.split}{written}{doubt}"
    for device, reasons in not_fitted.items():
        yield f"not fitted on {device}: {', '.join(reasons)}"


API_HEADER = ("operation", "API", "measured", "ratio to best", "modelled", "timer")


def api_rows(results: Sequence[ValidationResult]) -> list[list[str]]:
    """Return the reference points of chips that were measured through several APIs, the fastest API first.

    In a device's name, the chip is before the ``@`` and the API after it.
    """
    points: dict[tuple[str, str], list[tuple[str, ReferencePoint]]] = {}
    for result in results:
        chip, _, api = result.device.partition("@")
        for point in result.reference_points if isinstance(result, OperationResult) else ():
            work = " ".join([result.op, *(plain(value) for value in point.columns.values())])
            points.setdefault((chip, work), []).append((api or NOTHING, point))
    rows = []
    for (chip, work), apis in points.items():
        names = [api for api, _ in apis]
        if len(set(names)) < 2:
            continue
        ordered = sorted(apis, key=lambda item: item[1].measured_s)
        best_s = ordered[0][1].measured_s
        for api, point in ordered:
            # The source distinguishes two cards of one SKU.
            label = api if names.count(api) == 1 else f"{api} ({point.source})"
            rows.append(
                [
                    f"{work} on {chip}",
                    label,
                    quantity(point.measured_s, "s"),
                    f"×{number(point.measured_s / best_s)}",
                    quantity(point.modelled_s, "s"),
                    point.timer or NOTHING,
                ]
            )
    return rows


def plain(value: float | str) -> str:
    """Return a value of a column as text."""
    return value if isinstance(value, str) else f"{value:.10g}"


def text(results: Sequence[ValidationResult], omitted: Sequence[OmittedPoints] = ()) -> str:
    """Return the results as lines for a terminal. ``omitted``: the points that were not measured, and why."""
    compared = [result for result in results if isinstance(result, OperationResult)]
    apis = api_rows(results)
    lines = [*table_lines(table(results), "<<>"), *(["", *table_lines([API_HEADER, *apis], "<<>")] if apis else [])]
    lines += ["", *notes(compared), *makespan_lines(results), *omitted_lines(omitted)]
    if fits := held_out_fits(results):
        rows = fit_rows(fits)
        lines += ["", *(table_lines([FIT_HEADER, *rows], "<<>") if rows else []), *fit_notes(fits)]
    return "\n".join(map(printable, lines))


def makespan_lines(results: Sequence[ValidationResult]) -> Iterator[str]:
    """Yield a line for each makespan: the time that the model predicts and the measured one."""
    for result in results:
        if isinstance(result, MakespanResult):
            span = result.makespan
            predicted, measured = quantity(span.predicted_s, "s"), quantity(span.measured_s, "s")
            device = f"{result.device} ({result.sources[0]})"
            yield f"makespan of {span.jobs} jobs on {device}: predicted {predicted}, measured {measured}"


def omitted_lines(omitted: Sequence[OmittedPoints], shown: int = _SHOWN) -> Iterator[str]:
    """Yield a line for each reason why points were not measured, with their number and devices, the most points first.

    Operations and devices with the same reason share a line: a reason that names its operation names all of them.
    Calls without an answer come first. Of the other reasons at most ``shown`` have a line.
    """
    groups: dict[str, list[OmittedPoints]] = {}
    for part in omitted:
        if part.hung:
            yield f"hung on {part.source}: {part.why}"
        else:
            groups.setdefault(part.why.replace(f"'{part.op}'", _OPERATIONS), []).append(part)
    if not groups:
        return
    yield "not measured:"
    listed = sorted(groups.items(), key=lambda item: -sum(part.points for part in item[1]))
    for reason, parts in listed[:shown]:
        points = plural(sum(part.points for part in parts), "point")
        operations = ", ".join(f"'{op}'" for op in sorted({part.op for part in parts}))
        devices = ", ".join(sorted({part.source for part in parts}))
        yield f"  {points} on {devices}: {reason.replace(_OPERATIONS, operations)}"
    if len(listed) > shown:
        yield f"  {plural(len(listed) - shown, 'more reason')}, which --out DIR writes to validation.json"


def verdict(results: Sequence[ValidationResult], max_mape: float | None = None) -> str:
    """Return the answer in one line. ``max_mape`` is the largest MAPE that is accepted, as a fraction."""
    errors = [result.mape for result in results if result.mape is not None]
    if not errors:
        return "No measurement to compare with"
    floors = [result.noise_floor for result in results if result.noise_floor is not None]
    if len(results) == 1:
        subject = f"{results[0].op} on {results[0].device}"
    else:
        devices = plural(len({result.device for result in results}), "device")
        subject = f"{plural(len({result.op for result in results}), 'operation')} on {devices}"
    answer = f"{subject}: MAPE {_range(errors)}"
    if floors:
        answer += f" (noise floor {_range(floors)})"
    if max_mape is None:
        return answer
    above = sum(result.mape is None or result.mape > max_mape for result in results)
    limit = f"the limit of {percent(max_mape)}"
    return f"{answer}; {above} of {len(results)} above {limit}" if above else f"{answer}; within {limit}"


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if len(values) == 1 else f"{low} to {high}"
