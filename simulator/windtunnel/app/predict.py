"""`windtunnel predict`: predicts a table of operations, and names the basis of a prediction."""

from __future__ import annotations

import csv
from dataclasses import astuple, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from windtunnel.core.csvfile import write_whole
from windtunnel.core.device import Cost, Device
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.optable import read_op_table
from windtunnel.core.results.catalogue import Prediction
from windtunnel.library.predict import predictions


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
    return f"{accuracy.text}; mean cross-validation error {accuracy.cross_validation_error:.1%}{left_out}"


def predict_table(op: str, target: Device, source: Path, out: Path) -> int:
    """Predict every row of a CSV file (plain or .gz), and return the number of rows.

    ``out`` has the rows, the order and the columns of ``source``, with the cost columns added.

    A column with the name of a cost column (a measured ``power_w``) is written as ``<name>_given``.
    """
    if out.exists() and out.samefile(source):
        raise InputError(
            "the output is the input table itself", where=Location(str(out), field="--out"), expected="another file"
        )
    rows = read_op_table(OPERATIONS.find(op), source)
    table = rows.table
    header = [f"{name}_given" if name in Cost.COLUMNS else name for name in table.header]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(
            f"the output would have two columns '{twice[0]}'", where=Location(str(source), 1, field=twice[0])
        )
    cells: dict[int, Prediction] = {}
    for places, group in rows.groups():
        try:
            cost = target.cost(group)
        except InputError as error:
            raise error.at(rows.where(int(places[0]))) from None
        cells |= zip(places.tolist(), predictions(cost), strict=True)

    def write(stream: TextIO) -> None:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*header, *Cost.COLUMNS])
        writer.writerows([*row, *astuple(cells[place])] for place, row in enumerate(table.rows))

    write_whole(out, write)
    return len(table.rows)
