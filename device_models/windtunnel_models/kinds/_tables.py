"""Kinds of devices: their numbers are read from ``<kind>.yaml`` beside the module of the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from windtunnel.core import kept
from windtunnel.core.device import CostFunction, Designs, Kind, Parameters, compute_engine
from windtunnel.core.errors import InputError
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.spec import Parameter
from windtunnel.core.units import parse_unit
from windtunnel_models.kinds._shared import API_KEYS, COMMON, DTYPE_KEYS, EXACT, power_shares
from windtunnel_models.reader import FileReader, Path_

_KEYS = {"apis": API_KEYS, "dtypes": DTYPE_KEYS}
"""Sets of keys that a table may name instead of listing them."""

_ORIGINS = ("published", "datasheet", "measured")
_ENTRY = ("low", "high", "source", "assumption", "reason", *_ORIGINS)


def read_kind(
    name: str,
    costs: Mapping[str, CostFunction],
    *,
    engine: Callable[[Parameters, Rows], str] = compute_engine,
    parameters: Sequence[Parameter] = (),
    fits: Mapping[str, Mapping[str, float]] | None = None,
    designs: Designs | None = None,
) -> Kind:
    """Return the kind ``name`` with the numbers of its file.

    The parameters of all kinds (``COMMON``) come first. The file must give an error factor for each operation of
    ``costs`` except ``service``, which is exact.

    Args:
        name: The kind.
        costs: Its cost functions, by operation.
        engine: The function that names the hardware engine of an operation.
        parameters: Further parameters that are not in the file.
        fits: Further entries of ``fits``.
        designs: What a reconfigurable kind loads.

    Raises:
        InputError: with file, line and field, if the file is not valid.
    """
    operations = [op for op in costs if op != "service"]
    read = partial(_stated, name, operations, parameters)
    stated = kept.value("kind", (Path(__file__).parents[1],), (name,), read)
    return replace(
        stated,
        costs=costs,
        errors={**stated.errors, "service": EXACT},
        engine=engine,
        designs=designs,
        fits={**(fits or {}), **stated.fits},
    )


def _stated(name: str, operations: Sequence[str], parameters: Sequence[Parameter]) -> Kind:
    """Return a kind with what its file states, and ``parameters``, but no functions; see ``read_kind``."""
    reader = _TableReader(Path(__file__).with_name(f"{name}.yaml"), {}, "kind file")
    optional = ("sources", "assumptions", "power_shares", "transfer_errors", "transfer_shares", "fits")
    top = reader.mapping((), required=("schema", "kind", "doc", "parameters", "errors"), optional=optional)
    reader.check_name("kind", name)
    all_parameters = [*COMMON, *(reader.parameter(parameter) for parameter in top["parameters"])]
    if "power_shares" in top:
        all_parameters.append(power_shares(**reader.factors(("power_shares",))))
    errors = reader.error_factors(("errors",), operations)
    if missing := [op for op in operations if op not in errors]:
        raise reader.error(("errors",), f"'{missing[0]}' is missing", "an error factor for each operation")
    stated_fits = {op: reader.factors(("fits", op)) for op in top.get("fits", {})}
    names = [parameter.name for parameter in (*all_parameters, *parameters)]
    for op, deviations in stated_fits.items():
        for parameter in deviations:
            reader.choice(parameter, names, ("fits", op, parameter), "parameter", key=True)
    return Kind(
        name=name,
        doc=str(top["doc"]),
        parameters=(*all_parameters, *parameters),
        costs={},
        errors=errors,
        fits=stated_fits,
        transfer_errors={op: reader.error_factors(("transfer_errors", op)) for op in top.get("transfer_errors", {})},
        transfer_shares={op: reader.factors(("transfer_shares", op)) for op in top.get("transfer_shares", {})},
    )


class _TableReader(FileReader):
    """The parts that only kind files have."""

    def parameter(self, name: str) -> Parameter:
        """Return one parameter with its defaults."""
        here = ("parameters", name)
        optional = ("required", "fitted", "max", "keys", "default", "defaults")
        entry = self.mapping(here, required=("unit", "doc"), optional=optional)
        try:
            parse_unit(str(entry["unit"]))
        except InputError as error:
            raise error.at(self.document.where((*here, "unit"))) from None
        plain = Parameter(name, str(entry["unit"]), str(entry["doc"]))
        defaults = {key: self.sourced((*here, "defaults", key), plain) for key in entry.get("defaults", {})}
        keys = self._keys((*here, "keys")) if "keys" in entry else tuple(defaults)
        for key in defaults:
            self.choice(key, keys, (*here, "defaults", key), f"key of {name}", key=True)
        return Parameter(
            plain.name,
            plain.unit,
            plain.doc,
            keys=keys,
            required=bool(entry.get("required", False)),
            default=self.sourced((*here, "default"), plain) if "default" in entry else None,
            defaults=defaults,
            fitted=bool(entry.get("fitted", False)),
            max=float(entry["max"]) if "max" in entry else None,
        )

    def _keys(self, path: Path_) -> tuple[str, ...]:
        stated = self.at(path)
        if isinstance(stated, str):
            return _KEYS[self.choice(stated, _KEYS, path, "set of keys")]
        return tuple(self.words(path))

    def sourced(self, path: Path_, parameter: Parameter) -> SourcedValue:
        """Return one number with its origin.

        The origin is ``source: NAME`` of a source of the file, ``published: TEXT`` or another provenance with its text,
        or ``assumption:`` with the reason, or the name of a reason under ``assumptions``.
        """
        entry = self.mapping(path, required=("value",), optional=_ENTRY)
        reason = entry.get("reason")
        if "source" in entry:
            source, provenance = self.source(entry["source"], (*path, "source"))
        elif "assumption" in entry:
            text = str(entry["assumption"])
            source, provenance = "assumed", Provenance.ASSUMED
            reason = str(self.document.data.get("assumptions", {}).get(text, text))
        else:
            origin = next((name for name in _ORIGINS if name in entry), None)
            if origin is None:
                raise self.error(path, "a number needs its source", "source, assumption, " + ", ".join(_ORIGINS))
            source, provenance = str(entry[origin]), Provenance.from_label(origin)
        return self.with_range(path, parameter, provenance, source, reason)

    def error_factors(self, path: Path_, names: Sequence[str] | None = None) -> dict[str, SourcedValue]:
        """Return the error factors at ``path``, by operation or by relation."""
        entries = self.mapping(path, optional=names if names is not None else list(self.at(path)))
        return {name: self.sourced((*path, name), Parameter(name, "1", "")) for name in entries}

    def factors(self, path: Path_) -> dict[str, float]:
        """Return the plain numbers at ``path``."""
        names = self.mapping(path, optional=list(self.at(path)))
        return {name: self.number((*path, name), Parameter(name, "1", "")) for name in names}
