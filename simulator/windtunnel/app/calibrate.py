"""`windtunnel calibrate`: a device fitted to measurements of one operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from windtunnel.core.csvfile import write_whole
from windtunnel.core.errors import InputError, Where
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.optable import read_op_table
from windtunnel.core.version import __version__
from windtunnel.simulation.fleet import device_model as device
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.learned.read import shipped_overlay


def calibrate(
    op: str,
    measurements: Path,
    device_name: str,
    *,
    out: Path | None = None,
    strict: bool = False,
    catalogue: Catalogue | None = None,
) -> dict[str, Any]:
    """Fit a device to a table of measurements of one operation: its columns, ``latency_s`` and optionally ``power_w``.

    Starts from the device's datasheet and what other devices taught. Writes the overlay to ``out``, and returns what
    was learned and how sure it is. Raises InputError for too few rows, and on any outlier if ``strict``.
    """
    from windtunnel_models.learned.calibrate import calibrate as fit
    from windtunnel_models.learned.write import overlay_data, overlay_text

    operation = OPERATIONS.find(op)
    if not operation.hardware:
        raise InputError(f"{op} takes the time that it is told", expected="an operation that runs on hardware")
    if out is not None and out.exists() and measurements.exists() and out.samefile(measurements):
        raise InputError("this is the table itself", where=Where(str(out), field="--out"), expected="another file")
    target = device(device_name, catalogue or Catalogue(), "none")
    table = read_op_table(operation, measurements)
    found = fit(target, table, table.measured("latency_s"), table.measured("power_w", optional=True))
    if strict and found.warnings:
        raise InputError(found.warnings[0], where=Where(str(measurements), field="latency_s"), expected="seconds")
    if strict and found.outliers:
        first = found.outliers[0]
        raise InputError(
            f"{len(found.outliers)} of {found.rows} rows are far from what the others say; the first measured "
            f"{first.measured_s:g} s where they say {first.expected_s:g} s",
            where=Where(str(measurements), first.line, field="latency_s"),
            expected="a time that the others bear out, or no --strict",
        )
    if out is not None:
        note = f"windtunnel {__version__} calibrate, starting from what it knew without measurements of this SKU"
        data = overlay_data(found, f"{found.rows} measurements in {measurements.name}", note)
        text = overlay_text(data)

        def write(stream: TextIO) -> None:
            stream.write(text)

        write_whole(out, write)
    shipped = shipped_overlay(target.spec.sku, target.spec.kind)
    return {**found.report(), "instead_of": sorted(shipped.fits) if shipped is not None else []}
