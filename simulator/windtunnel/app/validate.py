"""`windtunnel validate` put together: measurements, the model beside them, figures, files, and the loop of calibration.

Beside `app` and like it a place that knows several parts. Measurements come from a file (``read``) or from whoever
measured; from there on nobody asks where they came from.
"""

from __future__ import annotations

import math
import platform
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.app import calibrate as calibrate_command
from windtunnel.core.csvfile import write_whole
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.result import result_json
from windtunnel.library import predict as predict_library
from windtunnel.report import validation as report
from windtunnel.simulation.fleet import device_model
from windtunnel.simulation.versions import made_with
from windtunnel.validation import page, rows
from windtunnel.validation.budget import Budget
from windtunnel.validation.campaign import Taken, measured
from windtunnel.validation.compare import Comparison, halves
from windtunnel.validation.compare import compare as _compare
from windtunnel.validation.rows import Circumstances, Measurement
from windtunnel_models import labels
from windtunnel_models.catalogue import Catalogue

MOST_IN_JSON = 2_000
"""Measurements that validation.json holds itself; more are in the CSV files alone."""

_MAKERS = frozenset(
    ("nvidia", "amd", "intel", "apple", "google", "xilinx", "tesla", "instinct", "radeon", "geforce", "quadro")
)
"""Words of a driver's name for a device that its SKU leaves out."""


def read(
    path: Path,
    *,
    op: str | None = None,
    device: str | None = None,
    model: str | None = None,
    context: Mapping[str, object] | None = None,
    catalogue: Catalogue | None = None,
) -> list[Measurement]:
    """The measurements of a file, each with the model it is to be compared with.

    ``device``: whose rows to keep, or whose they are where the file does not say. ``model``: the SKU they are compared
    with, where that is not the device's own name. See ``rows.read_file``. Raises InputError for what is wrong.
    """
    catalogue = catalogue or Catalogue()
    found = rows.read_file(path, op=op, device=device, context=context)
    if device is not None:
        found = _of_device(found, device, path, catalogue)
    if model is not None:
        names = sorted({row.device for row in found})
        if len(names) > 1:
            raise InputError(
                f"rows of {len(names)} devices would be compared with one model",
                where=Where(str(path), field="--as"),
                expected=f"--device, {one_of(names)}",
            )
        device_model(model, catalogue)
        return [_renamed(row, model) for row in found]
    models: dict[str, str] = {}
    for row in found:
        if row.device not in models:
            try:
                models[row.device] = model_of(row.device, catalogue)
            except InputError as error:
                raise error.at(Where(str(path), row.line, field="device")) from None
    return [_renamed(row, models[row.device]) for row in found]


def _of_device(found: Sequence[Measurement], device: str, path: Path, catalogue: Catalogue) -> list[Measurement]:
    """The rows that are of ``device``, by the file's own name for it or by the model's."""
    names = sorted({row.device for row in found})

    def same(name: str) -> bool:
        try:
            return name == device or model_of(name, catalogue) == device
        except InputError:
            return False

    kept = {name for name in names if same(name)}
    if not kept:
        raise InputError(
            f"no row is of '{device}'",
            where=Where(str(path), field="--device"),
            expected=one_of(names),
            nearest=nearest(device, names),
        )
    return [row for row in found if row.device in kept]


def _renamed(row: Measurement, model: str) -> Measurement:
    if row.device == model:
        return row
    return replace(row, device=model, source=f"{row.device} in {row.source}")


def model_of(name: str, catalogue: Catalogue) -> str:
    """The catalogue's name of a device that somebody else named: a SKU, its driver's name (`windtunnel_models.labels`),
    or all the SKU's words but the maker's.

    ``NVIDIA H200`` is ``h200-sxm-141gb``, ``A100 PCIE 40GB`` is ``a100-pcie-40gb``. Nothing is taken for what it is
    only like: InputError otherwise, with a SKU of the same chip.
    """
    sku, at, api = name.partition("@")
    if sku not in catalogue.skus():
        said = _words(sku)
        labelled = labels.model_of(sku, "gpu")
        like = [labelled] if labelled else [one for one in catalogue.skus() if _words(one) == said]
        if len(like) != 1:
            # One of the same chip, and not one whose name is spelt much alike.
            same = [one for one in catalogue.skus() if _words(one)[:1] == said[:1]]
            raise InputError(
                f"no device of the catalogue is called '{name}'",
                expected="a SKU that `windtunnel devices` lists, or --device and --as SKU",
                nearest=same[0] if same else nearest("-".join(said), catalogue.skus()),
            )
        sku = like[0]
    found = sku + at + api
    device_model(found, catalogue)
    return found


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.casefold()) if word and word not in _MAKERS)


def compare(
    measurements: Iterable[Measurement], *, catalogue: Catalogue | None = None, calibration: str | None = None
) -> list[Comparison]:
    """Model against measurement, by device and operation.

    ``calibration``: an overlay's path in place of the shipped one, or ``none`` to ignore what was fitted to the very
    SKU, as in ``app.predict``. Raises InputError where the model refuses every row of an operation.
    """
    return _compare(measurements, partial(device_model, catalogue=catalogue or Catalogue(), calibration=calibration))


def calibrated(
    measurements: Iterable[Measurement], folder: Path, *, catalogue: Catalogue | None = None
) -> list[dict[str, Any]]:
    """Fit each device and operation to half of its measurements and judge it on the other half, by whole shapes.

    Writes ``<device>/<op>.fit.csv``, the rows that were fitted, and ``<device>/<op>.yaml``, the overlay that
    `windtunnel calibrate` makes of them, under ``folder``. ``before`` and ``after`` are the figures on the half that no
    fit saw: of the model without measurements of this SKU, and with the overlay. What cannot be fitted says why in
    ``refused``. Rows that are suspect are left out of both halves.
    """
    catalogue = catalogue or Catalogue()
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in measurements:
        if not row.suspect:
            groups.setdefault((row.device, row.op), []).append(row)
    return [_calibrated(device, op, of, folder / device, catalogue) for (device, op), of in groups.items()]


def _calibrated(device: str, op: str, of: Sequence[Measurement], folder: Path, catalogue: Catalogue) -> dict[str, Any]:
    fitted, held, split = halves(of)
    entry: dict[str, Any] = {"device": device, "op": op, "split": split, "fitted": len(fitted), "held_out": len(held)}
    empty: dict[str, Any] = {"before": None, "after": None, "overlay": None, "calibration": None}
    if not held:
        return {**entry, **empty, "refused": "all rows are of one shape: nothing is left to judge by"}
    folder.mkdir(parents=True, exist_ok=True)
    table, overlay = folder / f"{op}.fit.csv", folder / f"{op}.yaml"
    rows.write_rows(table, fitted)
    try:
        found = calibrate_command.calibrate(op, table, device, out=overlay, catalogue=catalogue)
        before, after = (compare(held, catalogue=catalogue, calibration=which)[0] for which in ("none", str(overlay)))
    except InputError as error:
        return {**entry, **empty, "refused": error.problem + (f", {error.expected}" if error.expected else "")}
    return {
        **entry,
        "before": before.figures(),
        "after": after.figures(),
        "overlay": str(overlay),
        "calibration": found,
        "refused": None,
    }


def missed(results: Sequence[Mapping[str, Any]], at_most: float) -> list[str]:
    """Which comparisons are off by more than ``at_most`` (a fraction) in the mean, or have nothing to judge by."""
    said = []
    for one in results:
        if one["mape"] is None:
            said.append(f"{one['op']} on {one['device']} has no measurement to trust")
        elif one["mape"] > at_most:
            # As many digits as tell the two apart.
            digits = next((d for d in range(1, 12) if f"{one['mape']:.{d}%}" != f"{at_most:.{d}%}"), 12)
            said.append(f"{one['op']} on {one['device']} is {one['mape']:.{digits}%} off, above {at_most:.{digits}%}")
    return said


def circumstances(command: str = "") -> Circumstances:
    """Those of a comparison made here and now. The driver of what was measured elsewhere is not known here."""
    return Circumstances(
        host=f"{platform.machine()}, {platform.system()} {platform.release()}",
        versions=made_with(),
        date=datetime.now(UTC).replace(microsecond=0).isoformat(),
        command=command,
    )


def save(
    comparisons: Sequence[Comparison],
    results: Sequence[Mapping[str, Any]],
    folder: Path,
    about: Circumstances,
    at_most: float | None = None,
    omitted: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Write validation.json, validation.html and ``<device>/<op>.csv`` under ``folder``; nothing half-written stays.

    ``results``: the comparisons' reports. Suspect rows go to ``<op>.suspect.csv``, so that nobody fits to them by
    chance. ``validation.json`` holds the results, the circumstances and up to ``MOST_IN_JSON`` measurements, and can be
    given to ``read`` again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    everything = [row for one in comparisons for row in (*one.rows, *one.suspects)]
    written: list[Path] = []
    files: dict[str, int] = {}
    for one in comparisons:
        for suffix, kept in (("csv", one.rows), ("suspect.csv", one.suspects)):
            path = folder / one.name / f"{one.op}.{suffix}"
            if kept:
                path.parent.mkdir(exist_ok=True)
                rows.write_rows(path, kept)
                files[path.relative_to(folder).as_posix()] = len(kept)
                written.append(path)
    held = everything if len(everything) <= MOST_IN_JSON else []
    data = {**rows.document(held, about), "rows": files, "results": list(results), "omitted": list(omitted)}
    text = report.render(results, page.charts(comparisons), about.as_dict(), at_most, omitted)
    for name, content in (("validation.json", result_json(data)), ("validation.html", text)):
        write_whole(folder / name, lambda stream, content=content: stream.write(content))  # type: ignore[misc]
        written.append(folder / name)
    return written


def judged(
    measurements: Sequence[Measurement],
    about: Circumstances,
    *,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
    calibrate: bool = False,
    out: Path | None = None,
    at_most: float | None = None,
    spans: Sequence[Mapping[str, Any]] = (),
    omitted: Sequence[Mapping[str, Any]] = (),
) -> tuple[list[dict[str, Any]], list[Path]]:
    """Measurements against the model: the results, as JSON has them, and what was written under ``out``.

    ``spans``: results of whole scenarios, which stand after those of operations. ``omitted``: what was not measured.

    ``about``: the circumstances of the measurements. ``calibrate``: each result has, as ``calibrated``, what a fit to
    one half of its shapes does on the other. ``at_most``: the error in the mean (a fraction) that the page judges by.
    """
    if at_most is not None and not 0.0 <= at_most < math.inf:
        raise InputError(f"this is {at_most}", where=Where(field="--at-most"), expected="a share from 0")
    catalogue = catalogue or Catalogue()
    comparisons = compare(measurements, catalogue=catalogue, calibration=calibration)
    fits: list[dict[str, Any]] = []
    if calibrate and out is not None:
        fits = calibrated(measurements, out / "calibration", catalogue=catalogue)
    elif calibrate:
        with tempfile.TemporaryDirectory() as scratch:
            fits = [{**one, "overlay": None} for one in calibrated(measurements, Path(scratch), catalogue=catalogue)]
    results = [one.report() for one in comparisons]
    if calibrate:
        of = {(one["device"], one["op"]): one for one in fits}
        results = [{**one, "calibrated": of.get((one["device"], one["op"]))} for one in results]
    results += [dict(one) for one in spans]
    return results, [] if out is None else save(comparisons, results, out, about, at_most, omitted)


def validate_here(
    *,
    device: str | None = None,
    model: str | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    calibration: str | None = None,
    catalogs: Sequence[str | Path] = (),
    calibrate: bool = False,
    out: Path | None = None,
    at_most: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[dict[str, Any]], list[Path], list[dict[str, Any]]]:
    """Devices of this host against their models: see ``measuring.measured`` and ``judged``.

    The third part says what was not measured, and why. Where a device was given one scenario to run as itself and as
    its model, a result with the operation ``makespan`` compares the two.
    """
    catalogue = predict_library.catalogue(catalogs)
    options: dict[str, object] = {
        "--device": device, "--as": model, "--budget": None if budget is None else f"{budget.seconds:g}",
        "--seed": seed or None, "--calibration": calibration,
    }  # fmt: skip
    words = ["windtunnel", "validate"]
    words += [str(word) for name, value in options.items() if value is not None for word in (name, value)]
    words += [word for folder in catalogs for word in ("--catalog", str(folder))]
    words += ["--calibrate"] * calibrate + (["--out", str(out)] if out is not None else [])
    found = measured(
        device, model=model, budget=budget, seed=seed, catalogue=catalogue, calibration=calibration, progress=progress,
        command=shlex.join(words),
    )  # fmt: skip
    spans = [_makespan(one) for one in found.taken if one.makespan is not None]
    results, written = judged(
        found.rows,
        found.circumstances(),
        catalogue=catalogue,
        calibration=calibration,
        calibrate=calibrate,
        out=out,
        at_most=at_most,
        spans=spans,
        omitted=found.omitted(),
    )
    return results, written, found.omitted()


def _makespan(taken: Taken) -> dict[str, Any]:
    """A scenario's predicted and measured makespan, as a result."""
    assert taken.makespan is not None  # noqa: S101  whoever asks has seen
    span = dict(taken.makespan)
    error = span["predicted_s"] / span["measured_s"] - 1.0
    return {
        "device": taken.model,
        "op": "makespan",
        "n": 1,
        **dict.fromkeys(("mape", "median_ape", "p90_ape"), abs(error)),
        "bias": error,
        "noise_floor": None,
        "coverage": None,
        "sources": [taken.name],
        **{key: [] for key in ("by_bound", "by_dtype", "worst", "suspect", "refused")},
        **span,
    }


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
    at_most: float | None = None,
) -> tuple[list[dict[str, Any]], list[Path]]:
    """A file of measurements against the model: see ``read`` and ``judged``."""
    catalogue = predict_library.catalogue(catalogs)
    measurements = read(path, op=op, device=device, model=model, context=context, catalogue=catalogue)
    options = {"--op": op, "--device": device, "--as": model, "--calibration": calibration}
    words = ["windtunnel", "validate", "--against", str(path)]
    words += [word for name, value in options.items() if value is not None for word in (name, value)]
    words += [word for name, value in (context or {}).items() for word in ("--context", f"{name}={value}")]
    words += [word for folder in catalogs for word in ("--catalog", str(folder))]
    words += ["--calibrate"] * calibrate + (["--out", str(out)] if out is not None else [])
    return judged(
        measurements,
        circumstances(shlex.join(words)),
        catalogue=catalogue,
        calibration=calibration,
        calibrate=calibrate,
        out=out,
        at_most=at_most,
    )


__all__ = [
    "Budget",
    "calibrated",
    "circumstances",
    "compare",
    "judged",
    "missed",
    "read",
    "save",
    "validate",
    "validate_here",
]
