"""Overlays as files: the one writer for `windtunnel calibrate` and for ``benchmarks/accuracy``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from windtunnel.core.device import Arrays, Device
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel_models.learned.calibration import Calibration, Points
from windtunnel_models.learned.linear_model import UNITS, LinearCostModel
from windtunnel_models.learned.overlay import Fit
from windtunnel_models.learned.residuals import FREE, LOG_RATIO, NOISE, choice_key

_DIGITS = 6


class Quantity(TypedDict):
    """A number of an overlay, with its unit unless it has none, and the name of its source."""

    value: float | str
    source: str


Values = dict[str, Quantity | dict[str, Quantity]]
"""Numbers of an overlay by name, or by name and key."""


def overlay_data(result: Calibration, source: str, note: str) -> dict[str, object]:
    """Return the overlay of one calibration as plain data.

    Args:
        result: The calibration.
        source: The origin of the measurements.
        note: How the calibration was made.
    """
    op = result.op
    data: dict[str, object] = {
        "schema": 1,
        "sku": result.device.spec.sku,
        "api": result.device.api.name,
        "sources": {"measurements": {"text": source, "provenance": "measured"}},
        "values": values_data(result.device, result.values, "measurements"),
    }
    if result.points:
        entry: dict[str, object] = {"form": "points", "measurements": result.rows, "source": "measurements"}
        if result.linear_models:
            entry["linear_model"] = {fitted.key: _linear_data(fitted.model) for fitted in result.linear_models}
        entry["scales"] = {"/".join(choice_key(p.group.rows)): _scales_data(p, result.width) for p in result.points}
        entry["points"] = "\n".join(_point_lines(result.points)) + "\n"
        data["learned"] = {op: entry}
    notes = [note, *(["one factor for all sizes"] if result.constant_factor_only else [])]
    notes += [f"{fitted.key}: {fitted.model.describe()}, then its residual" for fitted in result.linear_models]
    data["fit"] = {
        op: {
            "rows": result.rows,
            "cross_validation_error": _round(result.cross_validation_error),
            "interval_coverage": _round(result.interval_coverage),
            "interval_half_width": _round(result.interval_half_width),
            "cross_validation_groups": "rows at random, five folds",
            "note": "; ".join(notes),
        }
    }
    return data


def _scales_data(points: Points, width: float) -> dict[str, float]:
    scales = points.process.scales
    return {
        "wide": scales.wide,
        "narrow": scales.narrow,
        "noise": scales.noise,
        "mix": scales.mix,
        "calibration": _round(width),
    }


def _linear_data(model: LinearCostModel) -> dict[str, str]:
    """Return the numbers of a model as quantities, without the terms that take no time."""
    return {name: f"{value!r} {UNITS[name]}" for name, value in model.numbers.items()}


def values_data(device: Device, values: Mapping[str, SourcedValue], source: str) -> Values:
    """Return parameters as an overlay states them: by name, or by name and key, a quantity with its source."""
    data: dict[str, Quantity] = {}
    tables: dict[str, dict[str, Quantity]] = {}
    for path, sourced in sorted(values.items()):
        name, _, key = path.partition(".")
        unit = device.kind.parameter(name).unit
        number = float(f"{sourced.value:.{_DIGITS}g}")
        entry: Quantity = {"value": number if unit == "1" else f"{number!r} {unit}", "source": source}
        if key:
            tables.setdefault(name, {})[key] = entry
        else:
            data[name] = entry
    both: Values = {**data, **tables}
    return {name: both[name] for name in sorted(both)}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _point_lines(kept: Sequence[Points]) -> list[str]:
    op = OPERATIONS.find(kept[0].group.rows.op.name)
    columns = [column for column in op.all_columns() if column.name not in FREE]
    lines = [",".join([*(column.name for column in columns), LOG_RATIO, NOISE])]
    for points in kept:
        rows = points.group.rows
        for i in range(len(points.group)):
            cells = [
                rows.choices[column.name] if column.kind == "choice" else f"{rows.numbers[column.name][i]:.10g}"
                for column in columns
            ]
            cells += [f"{points.residual[i]:.5f}", f"{points.group.noise[i]:.4g}"]
            lines.append(",".join(cells))
    return lines


def update_overlay(
    path: Path,
    device: Device,
    name: str,
    source: str,
    values: Mapping[str, float],
    *,
    fit: Fit | None = None,
    arrays: Arrays | None = None,
) -> None:
    """Write published numbers into an overlay file; what the file has under other names is kept.

    Args:
        path: The YAML file. Arrays go into the ``.npz`` file beside it, under ``<op>.``.
        device: The SKU without its own calibration.
        name: The name of the source within the file.
        source: The origin of the measurements.
        values: Parameters by ``name`` or ``name.key``, in SI units.
        fit: The quality of the fit of one operation.
        arrays: The residual of that operation as the kind reads it.
    """
    import numpy as np
    import yaml

    data = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    data = {"schema": 1, "sku": device.spec.sku, **data}
    data.setdefault("sources", {})[name] = {"text": source, "provenance": "published"}
    sourced = {key: SourcedValue(value, Provenance.PUBLISHED, source) for key, value in values.items()}
    data["values"] = {**(data.get("values") or {}), **values_data(device, sourced, name)}
    if fit is not None:
        stated = {key: value for key, value in asdict(fit).items() if key != "op" and value not in (None, "")}
        data.setdefault("fit", {})[fit.op] = {
            key: _round(value) if isinstance(value, float) else value for key, value in stated.items()
        }
    if fit is not None and arrays:
        file, prefix = path.with_suffix(".npz"), f"{fit.op}."
        kept = dict(np.load(file)) if file.is_file() else {}
        kept = {key: array for key, array in kept.items() if not key.startswith(prefix)}
        added: Any = {prefix + key: array for key, array in arrays.items()}
        np.savez_compressed(file, **kept, **added)
        entry = {"form": "arrays", "measurements": fit.rows, "source": name, "file": file.name}
        data.setdefault("learned", {})[fit.op] = entry
    order = ("schema", "sku", "api", "sources", "values", "learned", "fit")
    path.write_text(overlay_text({key: data[key] for key in order if key in data}), encoding="utf-8")


def overlay_text(data: Mapping[str, object]) -> str:
    """Return the overlay as YAML, with points as one block of lines."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as a literal block."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, block)
    return str(yaml.dump(dict(data), Dumper=Dumper, sort_keys=False, width=110, default_flow_style=None))
