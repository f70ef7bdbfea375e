"""`windtunnel calibrate`: fitting a device model to measurements of one operation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from windtunnel.claims.bounds import time_bound
from windtunnel.core.csvfile import write_texts
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.optable import OpTable, read_op_table
from windtunnel.core.results.calibration import BeyondDatasheet, CalibrationResult, FitReport
from windtunnel.core.step_op import Step
from windtunnel.core.units import format_quantity as quantity
from windtunnel.core.version import __version__
from windtunnel_models.catalogue import HOST, Catalogue, device_model, shipped_catalogue
from windtunnel_models.learned.read import shipped_overlay


def calibrate(
    op: str,
    measurements: Path,
    device_name: str,
    *,
    out: Path | None = None,
    strict: bool = False,
    trust: bool = False,
    catalogue: Catalogue | None = None,
) -> CalibrationResult:
    """Fit a device model to a table of measurements of one operation.

    The fit starts from the datasheet and from the transfer of other devices, without the shipped calibration.

    Args:
        op: The operation.
        measurements: A CSV file with the operation's columns, ``latency_s`` and optionally ``power_w``.
        device_name: The device, ``SKU`` or ``SKU@API``.
        out: The overlay file to write, if any.
        strict: Whether an outlier, a row beyond the datasheet or a suspected wrong unit is an error.
        trust: Whether rows that are faster than the datasheet allows are fitted too.
        catalogue: The catalogue of models.

    Returns:
        The fitted numbers and the accuracy of the fit, beside those of the shipped model.

    Raises:
        InputError: for an invalid table, too few rows that the datasheet allows, or any outlier if ``strict``.
    """
    from windtunnel_models.learned.calibrate import calibrate as fit
    from windtunnel_models.learned.write import overlay_data, overlay_text

    if op == Step.name:
        raise InputError("a step is priced by its operations", expected="one of these, such as gemm or attention")
    operation = OPERATIONS.find(op)
    if not operation.hardware:
        raise InputError(f"{op} takes the time that the scenario states", expected="an operation that runs on hardware")
    if out is not None and out.exists() and measurements.exists() and out.samefile(measurements):
        raise InputError("this is the table itself", where=Location(str(out), field="--out"), expected="another file")
    target = device_model(device_name, catalogue or shipped_catalogue(), "none")
    table = read_op_table(operation, measurements)
    beyond = beyond_datasheet(target, table)
    dropped = [] if trust else beyond
    if strict and dropped:
        raise _too_fast(
            dropped, measurements, f"{len(dropped)} rows are", "a time that the datasheet allows, or no --strict"
        )
    if dropped:
        table = table.without({row.line for row in dropped})
    try:
        result = fit(target, table, table.measured("latency_s"), table.measured("power_w", optional=True))
    except InputError as error:
        if not dropped:
            raise
        raise _too_fast(
            dropped,
            measurements,
            f"{error.problem}; {len(dropped)} further rows are",
            f"{error.expected} that the datasheet allows, or --trust-measurements",
        ) from None
    if strict:
        _refuse_outliers(result.report(), measurements)
    if out is not None:
        note = f"windtunnel {__version__} calibrate, starting from the model without measurements of this SKU"
        text = overlay_text(overlay_data(result, f"{result.rows} measurements in {measurements.name}", note))
        write_texts(out.parent, {out.name: text})
    shipped = shipped_overlay(target.spec.sku, target.spec.kind)
    return CalibrationResult(
        **vars(result.report()),
        shipped_error=_mean_error(
            device_model(device_name, catalogue or shipped_catalogue()), table, {o.line for o in result.outliers}
        ),
        instead_of=sorted(shipped.fits) if shipped is not None else [],
        beyond_datasheet=beyond,
        trusted=trust,
    )


def _refuse_outliers(report: FitReport, file: Path) -> None:
    """Raise InputError for a warning about the unit, or for the first outlier."""
    if report.warnings:
        raise InputError(report.warnings[0], where=Location(str(file), field="latency_s"), expected="seconds")
    if report.outliers:
        first = report.outliers[0]
        raise InputError(
            f"{len(report.outliers)} of {report.rows} rows are outliers; the first measured {first.measured_s:g} s, "
            f"where the other rows predict {first.expected_s:g} s",
            where=Location(str(file), first.line, field="latency_s"),
            expected="a time near the prediction, or no --strict",
        )


_TOLERANCE = 1.25
"""How much faster than the datasheet's bound a row may be: boost clocks, decimal units and rounding explain less."""


def beyond_datasheet(device: Device, table: OpTable) -> list[BeyondDatasheet]:
    """Return the rows that are over 1.25 times faster than the datasheet of ``device`` allows, by line.

    The bound is the most favourable one of bytes over bandwidth and operations over the peak rate. If a cache may hold
    the operands, bandwidth is no bound. The probed host has no datasheet.
    """
    if device.spec.sku == HOST:
        return []
    measured_s = table.measured("latency_s")
    found: list[BeyondDatasheet] = []
    for places, group in table.groups():
        # No prediction is faster than the bound, so only rows that are faster than predicted need their bounds.
        predicted_s = device.cost(group, intervals=False).duration_s
        for index in np.flatnonzero(measured_s[places] < predicted_s).tolist():
            one = {
                name: np.atleast_1d(np.broadcast_to(values, group.shape)[index])
                for name, values in group.numbers.items()
            }
            bound = time_bound(device, Rows(group.op, group.choices, one))
            place = int(places[index])
            if bound is not None and measured_s[place] * _TOLERANCE < bound.favourable:
                found.append(
                    BeyondDatasheet(
                        table.table.lines[place], float(measured_s[place]), bound.favourable, bound.favourable_why
                    )
                )
    return sorted(found, key=lambda row: row.line)


def _too_fast(beyond: Sequence[BeyondDatasheet], file: Path, subject: str, expected: str) -> InputError:
    first = beyond[0]
    return InputError(
        f"{subject} faster than the datasheet allows; the first measured {quantity(first.measured_s, 's')}, but "
        f"{first.why}",
        where=Location(str(file), first.line, field="latency_s"),
        expected=expected,
    )


def _mean_error(device: Device, table: OpTable, outliers: set[int]) -> float:
    """Return the mean absolute relative error of the predicted durations of a table, without the outliers' lines."""
    measured_s = table.measured("latency_s")
    error = np.empty(len(measured_s))
    for places, group in table.groups():
        error[places] = np.abs(device.cost(group, intervals=False).duration_s / measured_s[places] - 1.0)
    kept = [place for place in range(len(error)) if table.table.lines[place] not in outliers]
    return float(error[kept].mean())
