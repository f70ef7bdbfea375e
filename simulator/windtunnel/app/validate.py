"""`windtunnel validate`: measurements, the model's predictions for them, error figures, files and calibration.

Measurements come from a file (``read``) or from the devices of this host (``validate_here``).
"""

from __future__ import annotations

import math
import platform
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from windtunnel.app.calibrate import calibrate as calibrate_device
from windtunnel.core.csvfile import write_texts
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.results.data import result_json
from windtunnel.core.results.validation import (
    CalibratedResult,
    Environment,
    HeldOutFit,
    Makespan,
    MakespanResult,
    OmittedPoints,
    OperationResult,
    ValidationResult,
)
from windtunnel.library import predict as predict_library
from windtunnel.report.numbers import plural
from windtunnel.report.validation_page import render
from windtunnel.simulation.versions import made_with
from windtunnel.validation import page, rows
from windtunnel.validation.budget import Budget
from windtunnel.validation.campaign import measured
from windtunnel.validation.compare import Comparison, halves
from windtunnel.validation.compare import compare as _compare
from windtunnel.validation.rows import Measurement, MeasurementDocument
from windtunnel_models import labels
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue

MAX_IN_JSON = 2_000
"""The most measurements that validation.json contains; more are in the CSV files only."""

_MAKERS = frozenset(
    ("nvidia", "amd", "intel", "apple", "google", "xilinx", "tesla", "instinct", "radeon", "geforce", "quadro")
)
"""Words of a driver's name for a device that its SKU does not contain."""


def read(
    path: Path,
    *,
    op: str | None = None,
    device: str | None = None,
    model: str | None = None,
    context: Mapping[str, object] | None = None,
    catalogue: Catalogue | None = None,
) -> list[Measurement]:
    """Return the measurements of a file, each with the model that it is compared with.

    Args:
        path: A CSV file, or a validation.json; see ``rows.read_file``.
        op: The operation, if the file does not state it.
        device: The device whose rows to keep, or the device of all rows if the file does not state one.
        model: The SKU to compare with, if it is not the device's own name.
        context: Columns of the context that the file does not have.
        catalogue: The catalogue of models.

    Raises:
        InputError: with file, line and field, for invalid rows or an unknown device.
    """
    catalogue = catalogue or shipped_catalogue()
    measurements = rows.read_file(path, op=op, device=device, context=context)
    if device is not None:
        measurements = _of_device(measurements, device, path, catalogue)
    if model is not None:
        names = sorted({row.device for row in measurements})
        if len(names) > 1:
            raise InputError(
                f"rows of {len(names)} devices would be compared with one model",
                where=Location(str(path), field="--as"),
                expected=f"--device, {list_choices(names)}",
            )
        device_model(model, catalogue)
        return [_renamed(row, model) for row in measurements]
    models: dict[str, str] = {}
    for row in measurements:
        if row.device not in models:
            try:
                models[row.device] = model_of(row.device, catalogue)
            except InputError as error:
                raise error.at(Location(str(path), row.line, field="device")) from None
    return [_renamed(row, models[row.device]) for row in measurements]


def _of_device(measurements: Sequence[Measurement], device: str, path: Path, catalogue: Catalogue) -> list[Measurement]:
    """Return the rows of ``device``, which is the file's own name for it or the model's."""
    names = sorted({row.device for row in measurements})

    def is_device(name: str) -> bool:
        try:
            return name == device or model_of(name, catalogue) == device
        except InputError:
            return False

    kept = {name for name in names if is_device(name)}
    if not kept:
        raise InputError(
            f"no row is of '{device}'",
            where=Location(str(path), field="--device"),
            expected=list_choices(names),
            nearest=nearest(device, names),
        )
    return [row for row in measurements if row.device in kept]


def _renamed(row: Measurement, model: str) -> Measurement:
    if row.device == model:
        return row
    return replace(row, device=model, source=f"{row.device} in {row.source}")


def model_of(name: str, catalogue: Catalogue) -> str:
    """Return the catalogue's name of a device.

    ``name`` is a SKU, the name that its driver gives it (`windtunnel_models.labels`), or all words of the SKU without
    its maker: ``NVIDIA H200`` is ``h200-sxm-141gb``, ``A100 PCIE 40GB`` is ``a100-pcie-40gb``.

    Raises:
        InputError: if no SKU matches exactly, with a SKU of the same chip as the nearest name.
    """
    sku, at, api = name.partition("@")
    if sku not in catalogue.skus():
        words = _words(sku)
        labelled = labels.model_of(sku, "gpu")
        matches = [labelled] if labelled else [known for known in catalogue.skus() if _words(known) == words]
        if len(matches) != 1:
            # A SKU of the same chip is a better suggestion than one with a similar spelling.
            same_chip = [known for known in catalogue.skus() if _words(known)[:1] == words[:1]]
            raise InputError(
                f"'{name}' is not a device of the catalogue",
                expected="a SKU that `windtunnel devices` lists, or --device and --as SKU",
                nearest=nearest("-".join(words), same_chip or catalogue.skus()) or next(iter(same_chip), None),
            )
        sku = matches[0]
    full_name = sku + at + api
    device_model(full_name, catalogue)
    return full_name


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.casefold()) if word and word not in _MAKERS)


def compare(
    measurements: Iterable[Measurement], *, catalogue: Catalogue | None = None, calibration: str | None = None
) -> list[Comparison]:
    """Compare the models with measurements, by device and operation.

    Args:
        measurements: The measurements.
        catalogue: The catalogue of models.
        calibration: The path of an overlay that replaces the shipped one, or ``none``, as in ``app.predict``.

    Raises:
        InputError: if a model supports no row of an operation.
    """
    device_of = partial(device_model, catalogue=catalogue or shipped_catalogue(), calibration=calibration)
    return _compare(measurements, lambda name, op: predict_library.pricing(op, device_of(name)))


def calibrated(
    measurements: Iterable[Measurement], folder: Path, *, catalogue: Catalogue | None = None
) -> list[HeldOutFit]:
    """Fit each device and operation to half of its shapes, and compare the result with the other half.

    Writes the fitted rows, ``<device>/<op>.fit.csv``, and the overlay, ``<device>/<op>.yaml``, under ``folder``.
    Suspect rows are in neither half.

    Returns:
        The fit of each device and operation, and its errors on the other half.
    """
    catalogue = catalogue or shipped_catalogue()
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in measurements:
        if not row.suspect:
            groups.setdefault((row.device, row.op), []).append(row)
    return [_calibrated(device, op, group, folder / device, catalogue) for (device, op), group in groups.items()]


def _calibrated(
    device: str, op: str, measurements: Sequence[Measurement], folder: Path, catalogue: Catalogue
) -> HeldOutFit:
    fitted, held_out, split = halves(measurements)
    fit = HeldOutFit(device, op, split, len(fitted), len(held_out))
    if not held_out:
        return replace(fit, not_fitted="all rows are of one shape, so no row is left to compare with")
    folder.mkdir(parents=True, exist_ok=True)
    table, overlay = folder / f"{op}.fit.csv", folder / f"{op}.yaml"
    rows.write_rows(table, fitted)
    try:
        calibration = calibrate_device(op, table, device, out=overlay, catalogue=catalogue)
        before, after = (
            compare(held_out, catalogue=catalogue, calibration=which)[0].figures() for which in ("none", str(overlay))
        )
    except InputError as error:
        return replace(fit, not_fitted=error.problem + (f", {error.expected}" if error.expected else ""))
    return replace(fit, before=before, after=after, overlay=str(overlay), calibration=calibration)


def missed(results: Sequence[ValidationResult], max_mape: float) -> list[str]:
    """Return a message for each result whose MAPE exceeds ``max_mape`` (a fraction) or is unknown."""
    messages = []
    for result in results:
        name, mape = f"{result.op} on {result.device}", result.mape
        if mape is None:
            messages.append(f"{name}: every measurement is suspect")
        elif mape > max_mape:
            # As many digits as distinguish the two numbers.
            digits = next((d for d in range(1, 12) if f"{mape:.{d}%}" != f"{max_mape:.{d}%}"), 12)
            messages.append(f"{name}: MAPE {mape:.{digits}%} exceeds --max-mape {max_mape:.{digits}%}")
    return messages


def not_measured(results: Sequence[ValidationResult], omitted: Sequence[OmittedPoints]) -> list[str]:
    """Return messages on the operations of the devices of this host for which the budget was too small.

    It was too small to measure the operation at all, or to repeat points, without which a measurement has no noise.
    One message names all operations by device; devices without the same operations are named together.
    """
    compared = [result for result in results if isinstance(result, OperationResult)]
    measured_ops = {(source, result.op) for result in compared for source in result.sources}
    unmeasured: dict[str, list[str]] = {}
    for part in omitted:
        if part.over_budget and (part.source, part.op) not in measured_ops:
            unmeasured.setdefault(part.source, []).append(part.op)
    alike: dict[tuple[str, ...], list[str]] = {}
    for source, ops in unmeasured.items():
        alike.setdefault(tuple(ops), []).append(source)
    messages = []
    if alike:
        parts = [f"{', '.join(ops)} on {', '.join(sources)}" for ops, sources in alike.items()]
        messages.append(f"the budget was too small to measure {'; '.join(parts)}; expected a larger --budget")
    once = [
        f"{result.n - result.noise_points} of {plural(result.n, 'point')} of {result.op} on {', '.join(result.sources)}"
        for result in compared
        if result.noise_points < result.n
    ]
    if once:
        messages.append(f"measured once, which a larger --budget repeats: {'; '.join(once)}")
    if not compared:
        messages.append("nothing was measured")
    return messages


def not_fitted(results: Sequence[ValidationResult]) -> tuple[list[str], bool]:
    """Return a message for each operation that --calibrate did not fit, and whether it fitted none."""
    asked = [result for result in results if isinstance(result, CalibratedResult)]
    messages = [
        f"{result.op} on {result.device} was not fitted: "
        + ("every measurement is suspect" if result.calibrated is None else str(result.calibrated.not_fitted))
        for result in asked
        if result.calibrated is None or result.calibrated.not_fitted is not None
    ]
    return messages, len(messages) == len(asked)


def environment(command: str = "") -> Environment:
    """Return the environment of a comparison made on this host now. The driver is unknown: it is that of the file."""
    return Environment(
        host=f"{platform.machine()}, {platform.system()} {platform.release()}",
        versions=made_with(),
        date=datetime.now(UTC).replace(microsecond=0).isoformat(),
        command=command,
    )


@dataclass(frozen=True, kw_only=True)
class ValidationDocument(MeasurementDocument):
    """The content of validation.json. ``rows`` has the number of rows of each CSV file beside it."""

    rows: Mapping[str, int]
    results: Sequence[ValidationResult]
    omitted: Sequence[OmittedPoints]


def save(
    comparisons: Sequence[Comparison],
    results: Sequence[ValidationResult],
    folder: Path,
    about: Environment,
    max_mape: float | None = None,
    omitted: Sequence[OmittedPoints] = (),
) -> list[Path]:
    """Write validation.json, validation.html and ``<device>/<op>.csv`` under ``folder``, each completely or not at all.

    Suspect rows go to ``<op>.suspect.csv``, so that they are not fitted by mistake. ``validation.json`` has the
    results, the environment and up to ``MAX_IN_JSON`` measurements, and ``read`` accepts it.

    Args:
        comparisons: The comparisons.
        results: Their reports.
        folder: The folder to write to.
        about: The environment of the measurements.
        max_mape: The MAPE (a fraction) that the page uses as the limit.
        omitted: The points that were not measured.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    everything = [row for comparison in comparisons for row in (*comparison.rows, *comparison.suspects)]
    written: list[Path] = []
    files: dict[str, int] = {}
    for comparison in comparisons:
        for suffix, kept in (("csv", comparison.rows), ("suspect.csv", comparison.suspects)):
            path = folder / comparison.name / f"{comparison.op}.{suffix}"
            if kept:
                path.parent.mkdir(exist_ok=True)
                rows.write_rows(path, kept)
                files[path.relative_to(folder).as_posix()] = len(kept)
                written.append(path)
    included = everything if len(everything) <= MAX_IN_JSON else []
    data = ValidationDocument(environment=about, measurements=included, rows=files, results=results, omitted=omitted)
    text = render(results, page.charts(comparisons), about, max_mape, omitted)
    return [*written, *write_texts(folder, {"validation.json": result_json(data), "validation.html": text})]


def judged(
    measurements: Sequence[Measurement],
    about: Environment,
    *,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
    calibrate: bool = False,
    out: Path | None = None,
    max_mape: float | None = None,
    spans: Sequence[MakespanResult] = (),
    omitted: Sequence[OmittedPoints] = (),
    software: Collection[str] = (),
) -> tuple[list[ValidationResult], list[Path]]:
    """Compare measurements with the models; return the results, and the files written under ``out``.

    Args:
        measurements: The measurements.
        about: Their environment.
        catalogue: The catalogue of models.
        calibration: As in ``compare``.
        calibrate: Whether each result has the fit of ``calibrated``.
        out: The folder to write to, if any.
        max_mape: The MAPE (a fraction) that the page uses as the limit.
        spans: Results of whole scenarios, which are appended.
        omitted: The points that were not measured.
        software: The measured devices that are programs on the host's processor.
    """
    if max_mape is not None and not 0.0 <= max_mape < math.inf:
        raise InputError(f"this is {max_mape}", where=Location(field="--max-mape"), expected="a share from 0")
    catalogue = catalogue or shipped_catalogue()
    comparisons = compare(measurements, catalogue=catalogue, calibration=calibration)
    results = [_with_software(comparison.report(), software) for comparison in comparisons]
    if calibrate:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) if out is None else out / "calibration"
            fits = calibrated(measurements, folder, catalogue=catalogue)
        if out is None:
            fits = [replace(fit, overlay=None) for fit in fits]
        by_name = {(fit.device, fit.op): fit for fit in fits}
        results = [CalibratedResult(**vars(r), calibrated=by_name.get((r.device, r.op))) for r in results]
    everything: list[ValidationResult] = [*results, *spans]
    return everything, [] if out is None else save(comparisons, everything, out, about, max_mape, omitted)


def _with_software(result: OperationResult, software: Collection[str]) -> OperationResult:
    """Return the result with the measured devices that are software but not the host that the model describes."""
    if result.device.partition("@")[0] == labels.HOST:
        return result
    return replace(result, software=[source for source in result.sources if source in software])


def validate_here(
    *,
    device: str | None = None,
    model: str | None = None,
    op: str | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    calibration: str | None = None,
    catalogs: Sequence[str | Path] = (),
    calibrate: bool = False,
    out: Path | None = None,
    max_mape: float | None = None,
    progress: Callable[[str], None] | None = None,
    command: str = "",
) -> tuple[list[ValidationResult], list[Path], list[OmittedPoints]]:
    """Measure devices of this host and compare them with their models; see ``campaign.measured`` and ``judged``.

    ``command`` is the command line, which is recorded in the environment.

    Returns:
        The results, the files, and the points that were not measured with the reasons. If a device executed a scenario,
        a result with the operation ``makespan`` compares it with the model's.
    """
    catalogue = predict_library.catalogue(catalogs)
    measurements = measured(
        device,
        model=model,
        op=op,
        budget=budget,
        seed=seed,
        catalogue=catalogue,
        calibration=calibration,
        progress=progress,
        command=command,
    )
    results, written = judged(
        measurements.rows,
        measurements.environment(),
        catalogue=catalogue,
        calibration=calibration,
        calibrate=calibrate,
        out=out,
        max_mape=max_mape,
        spans=[
            _makespan(one.name, one.model, one.makespan) for one in measurements.devices if one.makespan is not None
        ],
        omitted=measurements.omitted(),
        software={one.name for one in measurements.devices if one.info.software},
    )
    return results, written, measurements.omitted()


def _makespan(name: str, model: str, makespan: Makespan) -> MakespanResult:
    """Return the predicted and the measured makespan of a scenario as a result."""
    error = makespan.predicted_s / makespan.measured_s - 1.0
    return MakespanResult(
        device=model,
        n=1,
        mape=abs(error),
        median_ape=abs(error),
        p90_ape=abs(error),
        bias=error,
        coverage=None,
        sources=[name],
        makespan=makespan,
    )


def validate(
    path: Path,
    *,
    op: str | None = None,
    device: str | None = None,
    model: str | None = None,
    context: Mapping[str, object] | None = None,
    calibration: str | None = None,
    catalogs: Sequence[str | Path] = (),
    calibrate: bool = False,
    out: Path | None = None,
    max_mape: float | None = None,
    command: str = "",
) -> tuple[list[ValidationResult], list[Path]]:
    """Compare a file of measurements with the models; see ``read`` and ``judged``.

    ``command`` is the command line, which is recorded in the environment.
    """
    catalogue = predict_library.catalogue(catalogs)
    measurements = read(path, op=op, device=device, model=model, context=context, catalogue=catalogue)
    return judged(
        measurements,
        environment(command),
        catalogue=catalogue,
        calibration=calibration,
        calibrate=calibrate,
        out=out,
        max_mape=max_mape,
    )


__all__ = [
    "Budget",
    "calibrated",
    "compare",
    "environment",
    "judged",
    "missed",
    "not_fitted",
    "not_measured",
    "read",
    "save",
    "validate",
    "validate_here",
]
