"""Writes what a fit found into the calibration files that come with the models.

One operation of one SKU at a time: ``calibration/<sku>.yaml`` keeps what other operations have there, and the arrays
go into ``calibration/<sku>.npz`` beside it, under ``<op>.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from windtunnel.core.provenance import Provenance, Sourced
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.learned.write import values_data

CALIBRATION = Path(__file__).parents[2] / "device_models" / "windtunnel_models" / "calibration"


def ship(
    sku: str,
    op: str,
    *,
    source: str,
    values: Mapping[str, float],
    arrays: Mapping[str, np.ndarray],
    measurements: int,
    fit: Mapping[str, Any],
) -> Path:
    """Write one operation's calibration; returns the YAML file.

    ``values``: path of a parameter (``name`` or ``name.key``) to its value (SI). ``fit``: ``rows``, ``held_out``,
    ``inside``, ``half_width`` (fractions), ``split`` and ``note``, from rows left out.
    """
    path = CALIBRATION / f"{sku}.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    data.setdefault("schema", 1)
    data.setdefault("sku", sku)
    data.setdefault("sources", {})[op] = {"text": source, "provenance": "published"}
    sourced = {name: Sourced(value, Provenance.PUBLISHED, source) for name, value in values.items()}
    device = Catalogue().device(sku, calibrated=False)
    data["values"] = {**(data.get("values") or {}), **values_data(device, sourced, op)}
    if arrays:
        file = path.with_suffix(".npz")
        kept = dict(np.load(file)) if file.is_file() else {}
        kept = {name: array for name, array in kept.items() if not name.startswith(f"{op}.")}
        kept |= {f"{op}.{name}": array for name, array in arrays.items()}
        np.savez_compressed(file, **kept)
        entry = {"form": "arrays", "measurements": measurements, "source": op, "file": file.name}
        data.setdefault("learned", {})[op] = entry
    data.setdefault("fit", {})[op] = {
        key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in fit.items()
    }
    order = ("schema", "sku", "sources", "values", "learned", "fit")
    text = yaml.safe_dump(
        {key: data[key] for key in order if key in data}, sort_keys=False, width=118, default_flow_style=None
    )
    path.write_text(text, encoding="utf-8")
    return path
