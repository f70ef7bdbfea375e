"""The text of `windtunnel validate serving` and `calibrate serving`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windtunnel.core.results.measured_serving import TIMES, EngineCalibration, ReplayResult, ServingRow
from windtunnel.core.units import format_quantity as show
from windtunnel.report.text import table_lines

_NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end"}
_NUMBERS = {
    "decode": "factor on operations, decode",
    "prefill": "factor on operations, prefill",
    "prompt_layer_s": "least time of a layer with a prompt",
    "host_s": "host time of a step",
    "host_sequence_s": "host time of a sequence",
}
Means = Sequence[tuple[str, str, int, Mapping[str, tuple[float, float] | None]]]


def row_lines(rows: Sequence[ServingRow]) -> Iterator[str]:
    """Yield a table of rows: modelled times, and their errors."""
    header = ["row", "engine", "model", "SKU"]
    for name in TIMES:
        header += [_NAMES[name], "error"]
    cells = []
    for row in rows:
        line = [str(row.row), row.engine, row.model, row.sku]
        for name in TIMES:
            modelled, error = getattr(row, name), row.error[name]
            line += ["" if modelled is None else show(modelled, "s"), "" if error is None else f"{error:+.1%}"]
        cells.append(line)
    yield from table_lines([header, *cells], "<")
    for row in rows:
        if row.problem is not None:
            yield f"row {row.row} was not simulated: {row.problem}"


def mean_lines(means: Means) -> Iterator[str]:
    """Yield a table of mean absolute errors and biases by engine and SKU."""
    header = ["engine", "SKU", "rows"]
    for name in TIMES:
        header += [f"{_NAMES[name]} MAPE", "bias"]
    cells = []
    for engine, sku, count, figures in means:
        line = [engine, sku, str(count)]
        for name in TIMES:
            found = figures[name]
            line += ["", ""] if found is None else [f"{found[0]:.1%}", f"{found[1]:+.1%}"]
        cells.append(line)
    yield from table_lines([header, *cells], "<")


def replay_lines(result: ReplayResult) -> Iterator[str]:
    """Yield a table of a replayed log: measured, modelled, and the error of each figure."""
    yield f"{result.requests:,} requests replayed"
    cells = [["time", "figure", "measured", "modelled", "error"]]
    for name in TIMES:
        for figure in ("mean", "p50", "p95", "p99"):
            measured, modelled, error = (
                getattr(table[name], figure) for table in (result.measured, result.modelled, result.error)
            )
            cells.append([_NAMES[name], figure, show(measured, "s"), show(modelled, "s"), f"{error:+.1%}"])
    yield from table_lines(cells, "<")


def calibration_lines(result: EngineCalibration) -> Iterator[str]:
    """Yield what a calibration learned, and how surely."""
    yield (
        f"{result.engine} with {result.model} on {result.sku}: {result.rows} row{'s' * (result.rows > 1)}, "
        f"error of the time per output token {result.shipped_error:.1%} with the shipped profile, {result.error:.1%} "
        "fitted"
    )
    if result.held_out_error is not None:
        yield f"  each row by a fit to the others: {result.held_out_error:.1%}"
    yield f"  90% interval of a step: a factor of {result.error_factor:.2f}"
    cells = [["number", "profile", "fitted", "90% bounds", "learned"]]
    for number in result.numbers:
        unit = "s" if number.name.endswith("_s") else None

        def text(value: float, unit: str | None = unit) -> str:
            return f"{value:.3f}" if unit is None else show(value, unit)

        cells.append(
            [
                _NUMBERS[number.name],
                text(number.profile),
                text(number.value),
                f"{text(number.low)} to {text(number.high)}",
                f"{number.learned:.0%}",
            ]
        )
    yield from table_lines(cells, "<")
    if result.frontend_s is not None:
        yield f"  time outside of the steps before the first token: {show(result.frontend_s, 's')}"
    for note in result.notes:
        yield f"  note: {note}"
