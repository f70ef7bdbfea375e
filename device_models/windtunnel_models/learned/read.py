"""Calibration overlays read from their files, and the shipped ones by SKU."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from windtunnel.core.errors import list_choices
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.spec import Parameter
from windtunnel_models.kinds import find_kind
from windtunnel_models.learned.linear_model import UNITS, LinearCostModel
from windtunnel_models.learned.overlay import Fit, LearnedEntry, Overlay
from windtunnel_models.reader import FileReader, Path_

CALIBRATION = Path(__file__).parents[1] / "calibration"
"""The folder of the shipped overlays."""

_NEEDS = {"points": ("points", "scales"), "arrays": ("file",)}
"""What each form of a residual needs in its file."""


def calibrated_skus() -> list[str]:
    """Return the SKUs that have a shipped calibration, by name."""
    return sorted(path.stem for path in CALIBRATION.glob("*.yaml"))


@lru_cache(maxsize=256)
def shipped_overlay(sku: str, kind: str) -> Overlay | None:
    """Return the calibration that comes with the models, or None if the SKU was never measured."""
    path = CALIBRATION / f"{sku}.yaml"
    return read_overlay(path, sku, kind) if path.is_file() else None


def read_overlay(path: Path, sku: str, kind: str) -> Overlay:
    """Return a calibration of ``sku``, a device of ``kind``.

    Raises:
        InputError: if the file is not a valid overlay, or was fitted to another SKU.
    """
    parameters = {parameter.name: parameter for parameter in find_kind(kind).parameters}
    reader = _OverlayReader(path, parameters, "calibration overlay")
    top = reader.mapping((), required=("schema", "sku", "sources", "values"), optional=("api", "fit", "learned"))
    if top["sku"] != sku:
        raise reader.error(("sku",), f"this overlay is of '{top['sku']}'", sku)
    return Overlay(
        sku,
        reader.values() if top["values"] else {},
        reader.learned() if "learned" in top else {},
        reader.fits() if "fit" in top else {},
        path,
        str(top["api"]) if "api" in top else None,
    )


class _OverlayReader(FileReader):
    """The parts that only overlays have."""

    def learned(self) -> dict[str, LearnedEntry]:
        """Return the residuals by operation: ``{form, measurements, source}`` and what the form needs."""
        entries: dict[str, LearnedEntry] = {}
        for op in self.mapping(("learned",), optional=tuple(OPERATIONS)):
            here = ("learned", op)
            if not isinstance(self.at(here), dict):
                raise self.error(here, "this is not a mapping", "form: points")
            form = self.choice(self.at(here).get("form"), _NEEDS, (*here, "form"), "form of a residual")
            optional = ("linear_model",) if form == "points" else ()
            entry = self.mapping(here, required=("form", "measurements", "source", *_NEEDS[form]), optional=optional)
            text, provenance = self.source(entry["source"], (*here, "source"))
            count = entry["measurements"]
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise self.error((*here, "measurements"), f"this is {count!r}", "a count")
            models = self.linear_models((*here, "linear_model")) if "linear_model" in entry else {}
            entries[op] = LearnedEntry(
                form,
                SourcedValue(float(count), provenance, text),
                models,
                points=str(entry.get("points", "")),
                scales=entry.get("scales", {}),
                file=str(entry.get("file", "")),
            )
        return entries

    def linear_models(self, path: Path_) -> dict[str, LinearCostModel]:
        """Return the linear cost models by choices: ``{launch_s, bytes_per_s, flops_per_s}``, at least one of them."""
        if not isinstance(self.at(path), dict):
            raise self.error(path, "this is not a mapping", "choices to numbers")
        models: dict[str, LinearCostModel] = {}
        for key in self.at(path):
            here = (*path, key)
            names = self.mapping(here, optional=tuple(UNITS))
            numbers = {name: self.number((*here, name), Parameter(name, UNITS[name], "")) for name in names}
            try:
                models[str(key)] = LinearCostModel.of(numbers)
            except ValueError as error:
                raise self.error(here, str(error), list_choices(UNITS)) from None
        return models

    def fits(self) -> dict[str, Fit]:
        """Return the quality of each operation's fit."""
        fits: dict[str, Fit] = {}
        for op in self.mapping(("fit",), optional=tuple(OPERATIONS)):
            entry = self.mapping(("fit", op), required=("rows",), optional=Fit.OPTIONAL)
            fits[op] = Fit(op, **entry)
        return fits
