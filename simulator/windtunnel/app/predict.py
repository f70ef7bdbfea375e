"""`windtunnel predict`: predicts a table of operations, and names the basis of a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table, read_table, write_table
from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import Rows, one_row
from windtunnel.core.optable import OpTable
from windtunnel.core.pricing import refused_rows
from windtunnel.core.results.catalogue import Prediction, StepPrediction
from windtunnel.core.step_op import PREDICTED, Step
from windtunnel.core.units import format_quantity as show
from windtunnel.library.predict import predictions, pricing
from windtunnel.library.steps import StepPricing
from windtunnel.report.text import line_ranges


def rates(rows: Rows, duration_s: float) -> tuple[float, float]:
    """Return the achieved rates of one operation: FLOP/s, and operand bytes per second, each moved once (B/s).

    A rate is 0 if the operation has no such count.
    """
    work = rows.op.flops(rows.choices, rows.numbers), rows.op.operand_bytes(rows.choices, rows.numbers)
    flops, moved = (float(np.broadcast_to(amount, rows.shape)[0]) for amount in work)
    return flops / duration_s, moved / duration_s


def device_duration_s(rows: Rows, target: Device) -> float | None:
    """Return the device's own part (s) of one operation that a graph or a framework launches; None for other rows.

    The rest belongs to the host and its software: another host has another.
    """
    if rows.choices.get("dispatch", "device") == "device":
        return None
    alone = replace(rows, choices={**rows.choices, "dispatch": "device"})
    return float(target.cost(alone, intervals=False).duration_s[0])


def known_from(op: str, target: Device) -> str:
    """Return one line on the basis of a duration: measurements of this SKU, of other devices, or a formula."""
    accuracy = target.accuracy_of(op)
    if accuracy.basis == "formula":
        return f"a formula without measurements of this SKU; its 90% interval: {accuracy.text}"
    if accuracy.cross_validation_error is None:
        return accuracy.text
    left_out = f", leaving out {groups}" if (groups := accuracy.cross_validation_groups) else ""
    usual = target.api.name == target.spec.apis[0]
    other = "" if usual else f"; no measurement was made through {target.api.name}"
    return f"{accuracy.text}; mean cross-validation error {accuracy.cross_validation_error:.1%}{left_out}{other}"


def design_of(rows: Rows, target: Device) -> tuple[str, float] | None:
    """Return the design that one operation needs and the time to load it (s), which its duration does not include.

    None for devices that are not reconfigured, and for operations that need no design.
    """
    load, (name, *_) = target.design_load(), target.designs_of(rows)
    return None if load is None or not name else (str(name), load.duration_s)


def predict_step(target: Device, values: Mapping[str, object]) -> tuple[Rows, StepPrediction, list[str]]:
    """Return one step as a row, its cost on a group of ``target`` with its parts, and notes on it."""
    rows, priced = one_row(Step, values), StepPricing(target)
    notes = [f"the sequences take {STEP_TOO_LARGE}"] if priced.exceeds_memory(rows)[0] else []
    return rows, priced.one(rows), notes


STEP_TOO_LARGE = "more memory than the weights leave on the group: this is the time of devices with enough memory"


@dataclass(frozen=True)
class PredictedTable:
    """A table that was predicted: the number of its rows, and notes on them."""

    rows: int
    notes: Sequence[str] = ()


def memory_note(rows: Rows, target: Device) -> str | None:
    """Return a note if the operands of one operation exceed the memory of the device."""
    need, size = float(rows.footprint_bytes().reshape(-1)[0]), target.memory_bytes
    if need <= size:
        return None
    return (
        f"the operands take {show(need, 'B')} and {target.label} has {show(size, 'B')} of memory: this is the time of "
        "a device with enough memory"
    )


def predict_table(op: str, target: Device, source: Path, out: Path) -> PredictedTable:
    """Predict every row of a table (.csv, .csv.gz or .parquet), and return the number of rows.

    ``out`` has the rows, the order and the columns of ``source``, with the cost columns added.

    A column with the name of a cost column (a measured ``power_w``) is written as ``<name>_given``.

    Raises:
        InputError: with the line and the reason of every row that is refused.
    """
    if out.exists() and out.samefile(source):
        raise InputError(
            "the output is the input table itself", where=Location(str(out), field="--out"), expected="another file"
        )
    operation, table = PREDICTED.find(op), read_table(source, "table")
    priced = pricing(op, target)
    if priced is target:
        target.cost_function(op)  # raises for an operation that the kind does not run
    refused = OpTable.refused_rows(operation, table)
    whole = table if not refused else _kept(table, refused)
    header = _header(table)
    places = [place for place in range(len(table.rows)) if place not in refused]
    cells: dict[int, Prediction] = {}
    too_large: list[int] = []
    for members, group, cost in _costs(priced, list(OpTable(operation, whole).groups())):
        original = [places[member] for member in members.tolist()]
        if cost is None:
            refused |= {original[index]: error for index, error in refused_rows(priced, group).items()}
            continue
        cells |= zip(original, predictions(cost), strict=True)
        too_large += [original[i] for i in np.flatnonzero(priced.exceeds_memory(group)).tolist()]
    if refused:
        raise _all_refused(refused, table)
    names = Cost.COLUMNS
    predicted = ([*row, *(getattr(cells[place], name) for name in names)] for place, row in enumerate(table.rows))
    types = {new: table.types[name] for new, name in zip(header, table.header, strict=True) if name in table.types}
    write_table(out, [*header, *Cost.COLUMNS], predicted, types)
    return PredictedTable(len(table.rows), _table_notes(op, too_large, table, target))


def _header(table: Table) -> list[str]:
    """Return the columns of the output that come from the table; raises InputError if two have one name."""
    header = [f"{name}_given" if name in Cost.COLUMNS else name for name in table.header]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(
            f"the output would have two columns '{twice[0]}'", where=Location(table.file, 1, field=twice[0])
        )
    return header


def _costs(
    priced: Device | StepPricing, groups: Sequence[tuple[np.ndarray, Rows]]
) -> Iterator[tuple[np.ndarray, Rows, Cost | None]]:
    """Yield each group of rows with its cost, or None if one of the rows is refused."""
    if isinstance(priced, StepPricing):
        try:
            costs = priced.costs([rows for _, rows in groups])
        except InputError:
            pass
        else:
            yield from ((members, rows, cost) for (members, rows), cost in zip(groups, costs, strict=True))
            return
    for members, rows in groups:
        try:
            yield members, rows, priced.cost(rows)
        except InputError:
            yield members, rows, None


def _kept(table: Table, refused: Mapping[int, InputError]) -> Table:
    """Return the table without the rows at the indices ``refused``."""
    kept = [place for place in range(len(table.rows)) if place not in refused]
    return replace(table, rows=[table.rows[p] for p in kept], lines=[table.lines[p] for p in kept])


def _all_refused(refused: Mapping[int, InputError], table: Table) -> InputError:
    """Return one error that names every refused row with its reason; rows refused for one reason are together."""
    by_reason: dict[str, list[int]] = {}
    for place, error in sorted(refused.items()):
        by_reason.setdefault(str(error), []).append(table.lines[place])
    if len(by_reason) == 1 and len(refused) == 1:
        ((place, error),) = refused.items()
        return error.at(Location(table.file, table.lines[place]))
    listed = "".join(f"\n  {line_ranges(lines)}: {reason}" for reason, lines in by_reason.items())
    return InputError(
        f"{len(refused):,} of {len(table.rows):,} rows are refused, and nothing was written:{listed}",
        where=Location(table.file),
    )


_NAMED_LINES = 20
"""The most lines that a note names."""


def _table_notes(op: str, too_large: Sequence[int], table: Table, target: Device) -> list[str]:
    if not too_large:
        return []
    numbers = sorted(table.lines[place] for place in too_large)
    lines = line_ranges(numbers[:_NAMED_LINES])
    if len(numbers) > _NAMED_LINES:
        lines += f" and {len(numbers) - _NAMED_LINES:,} more"
    if op == Step.name:
        return [f"{lines}: the sequences take {STEP_TOO_LARGE}"]
    return [
        f"{lines}: the operands exceed the {show(target.memory_bytes, 'B')} of memory of {target.label}: these are the "
        "times of a device with enough memory"
    ]
