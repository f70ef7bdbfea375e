"""The catalogue: SKU files and API profiles read, checked and joined into devices.

A SKU is one YAML file, ``catalog/<kind>/<sku>.yaml``, and a user's own folder (``--catalog DIR``) may hold
more; an API is one YAML file, ``apis/<api>.yaml``; an overlay of fitted values, ``calibration/<sku>.yaml``,
is laid over a SKU without editing it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from windtunnel.core.device import (
    KERNEL_TYPES,
    ApiProfile,
    Device,
    DeviceSpec,
    Kind,
    Lineage,
    ModelAccuracy,
    Numbers,
    Parameter,
    Residual,
    Stated,
)
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.provenance import PROVENANCES, Provenance, Sourced
from windtunnel.core.units import is_dimensionless, parse_quantity
from windtunnel.core.yamlfile import Document, parse, read_text
from windtunnel_models.host import host_spec
from windtunnel_models.kinds import find_kind
from windtunnel_models.learned.law import UNITS, Law
from windtunnel_models.learned.overlay import Fit, LearnedEntry, Overlay
from windtunnel_models.learned.residuals import Member, Transferred, bind
from windtunnel_models.learned.transfer import Relative, relatives, same_units, taught
from windtunnel_models.learned.transfer import nearest as nearest_kin

HERE = Path(__file__).parent

_MEMORY = r"(HBM|GDDR|LPDDR|DDR)\d"

HOST = "host"
"""The SKU that no file describes: this machine's processor."""

API_PARAMETERS = (
    Parameter("dispatch_s", "s", "host time to enqueue one kernel, back to back"),
    Parameter("round_trip_s", "s", "one empty kernel launched and waited for"),
    Parameter("graph_node_s", "s", "device time between two nodes of a replayed graph or recorded command buffer"),
    Parameter("synchronize_s", "s", "host time to notice that work has finished"),
    Parameter("persistent_write_s", "s", "a command written to memory that a running kernel polls"),
    Parameter("persistent_poll_s", "s", "from the answer written to the host seeing it"),
    Parameter("copy_setup_s", "s", "fixed cost of one copy between host and device"),
    Parameter("pageable_fraction", "1", "rate of a pageable copy over that of a pinned one"),
    Parameter("unified_fraction", "1", "rate of on-demand migration over that of a pinned copy"),
    Parameter("compute_efficiency", "1", "attained fraction of the silicon's vector peak, beside its native API"),
    Parameter("compile_s", "s", "compiling a small kernel at first use"),
    Parameter("context_s", "s", "opening a device: the driver's start and a context"),
    Parameter("allocate_s", "s", "host time to take a block of device memory from the driver"),
)


class Catalogue:
    """Every SKU and API that is known, read when first asked for.

    ``host`` describes the SKU of that name where this process is not to probe the machine it is on.
    """

    def __init__(self, folders: Sequence[Path] = (), host: DeviceSpec | None = None) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"there is no catalogue folder '{folder}'", expected="a folder of SKU files")
        self._folders = (HERE / "catalog", *folders)
        self._host = host
        self._residuals: dict[tuple[str, str], Residual] = {}
        self._devices: dict[tuple[str, bool], Device] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What can be made again from the files does not travel to other processes.
        return {**self.__dict__, "_residuals": {}, "_devices": {}}

    @cached_property
    def _files(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for folder in self._folders:
            for path in sorted(folder.rglob("*.yaml")):
                if path.stem in files or path.stem == HOST:
                    first = files.get(path.stem, "the probed host")
                    raise InputError(f"the SKU '{path.stem}' is described twice: {first} and {path}")
                files[path.stem] = path
        return files

    def skus(self) -> list[str]:
        """Every SKU's name, by kind and then by name; ``host``, which is probed, comes last."""
        return [*self._files, HOST]

    def specs(self) -> Iterator[DeviceSpec]:
        """Every SKU, read and checked."""
        return (self.spec(sku) for sku in self.skus())

    def spec(self, sku: str) -> DeviceSpec:
        """What the SKU's file says; InputError for an unknown SKU, with the nearest right name."""
        if sku == HOST:
            return self._host or host_spec()
        if sku not in self._files:
            raise InputError(
                f"unknown device '{sku}'",
                expected=f"one of the {len(self.skus())} SKUs that `windtunnel devices` lists",
                nearest=nearest(sku, self.skus()),
            )
        return _read_spec(self._files[sku])

    def device(
        self,
        name: str,
        *,
        overlay: Mapping[str, Sourced] | None = None,
        calibration: Overlay | None = None,
        calibrated: bool = True,
    ) -> Device:
        """The device called ``SKU`` or ``SKU@API``.

        Numbers lie over each other: the kind's defaults, what calibrated relatives teach, the SKU's own file, its
        calibration (``calibration``, else the shipped one), and single values (``overlay``). ``calibrated`` false
        ignores what was fitted to this very SKU. Made once for each name, where nothing is given beside it.
        """
        if overlay is not None or calibration is not None:
            return self._device(name, overlay, calibration, calibrated)
        if (name, calibrated) not in self._devices:
            self._devices[name, calibrated] = self._device(name, None, None, calibrated)
        return self._devices[name, calibrated]

    def _device(
        self, name: str, overlay: Mapping[str, Sourced] | None, calibration: Overlay | None, calibrated: bool
    ) -> Device:
        sku, at, api_name = name.partition("@")
        spec = self.spec(sku)
        kind = find_kind(spec.kind)
        api_name = api_name or spec.apis[0]
        if at and api_name not in spec.apis:
            apis = api_names()
            if api_name not in apis:
                raise InputError(
                    f"unknown API '{api_name}' in '{name}'",
                    expected=one_of(apis),
                    nearest=nearest(api_name, apis),
                )
            raise InputError(
                f"{sku} is not reached through {api_name}",
                expected=one_of(spec.apis),
                nearest=nearest(api_name, spec.apis),
            )
        if calibration is not None and calibration.api not in (None, api_name):
            raise InputError(
                f"this overlay is of {sku} through {calibration.api}, not through {api_name}",
                where=Where(str(calibration.path), field="api"),
                expected=f"the device it is of, {sku}@{calibration.api}, or measurements of {sku}@{api_name}",
            )
        if calibration is None and calibrated:
            calibration = shipped_overlay(sku, spec.kind)
        values, residuals, accuracies = self._calibrated(spec, kind, calibration)
        values.update(overlay or {})
        return Device(spec, kind, api_profile(api_name), values, residuals=residuals, accuracies=accuracies)

    def _calibrated(
        self, spec: DeviceSpec, kind: Kind, overlay: Overlay | None
    ) -> tuple[dict[str, Sourced], dict[str, Residual], dict[str, ModelAccuracy]]:
        """The device's numbers and residuals: its calibration's, its relatives' where that is silent; and how good."""
        values = _defaults(kind)
        names = [parameter.name for parameter in kind.parameters if parameter.taught]
        kin, overlays = self._kin(spec) if names or kind.learned else ([], {})
        values.update(taught(kin, overlays, names))
        values.update(spec.values)
        if overlay is not None:
            values.update(overlay.values)
        residuals: dict[str, Residual] = {}
        accuracies = {op: fit.accuracy() for op, fit in overlay.fits.items()} if overlay is not None else {}
        ops = {op for theirs in overlays.values() for op in theirs.learned}
        for op in sorted(ops | set(overlay.learned if overlay is not None else ())):
            beneath = self._transferred(spec, kind, kin, overlays, op)
            entry = overlay.learned.get(op) if overlay is not None else None
            if entry is not None and overlay is not None:
                frozen = Device(spec, kind, api_profile(overlay.api or spec.apis[0]), dict(values))
                residuals[op] = bind(entry, frozen, op, overlay.path, beneath)
            elif beneath is not None:
                residuals[op] = beneath
                accuracies.setdefault(op, beneath.accuracy(op))
        return values, residuals, accuracies

    def _kin(self, spec: DeviceSpec) -> tuple[list[Relative], dict[str, Overlay]]:
        """The calibrated devices of the same kind that bear on ``spec``, and their overlays."""
        overlays = {
            path.stem: found
            for path in sorted((HERE / "calibration").glob("*.yaml"))
            if path.stem != spec.sku and path.stem in self._files
            if self.spec(path.stem).kind == spec.kind and (found := shipped_overlay(path.stem, spec.kind)) is not None
        }
        return relatives(spec, [self.spec(sku) for sku in overlays]), overlays

    def _transferred(
        self, spec: DeviceSpec, kind: Kind, kin: Sequence[Relative], overlays: Mapping[str, Overlay], op: str
    ) -> Transferred | None:
        """What the relatives that learned something of ``op`` say together; None where none did."""
        having = nearest_kin([relative for relative in kin if op in overlays[relative.sku].learned])
        if not having:
            return None
        shares = kind.transfer_shares.get(op, {})
        members = [
            Member(
                relative.weight,
                shares.get(relative.relation, 0.0) if same_units(spec, self.spec(relative.sku)) else 0.0,
                self._own_residual(relative.sku, op),
            )
            for relative in having
        ]
        closest = having[0].relation
        return Transferred(members, closest, kind.transfer_errors[op][closest], ", ".join(r.sku for r in having))

    def _own_residual(self, sku: str, op: str) -> Residual:
        """The residual of a shipped calibration, over that device as it was fitted."""
        if (sku, op) not in self._residuals:
            spec = self.spec(sku)
            overlay = shipped_overlay(sku, spec.kind)
            if overlay is None:
                raise ValueError(f"{sku} has no calibration")
            kind = find_kind(spec.kind)
            values = _defaults(kind)
            values.update(spec.values)
            values.update(overlay.values)
            frozen = Device(spec, kind, api_profile(overlay.api or spec.apis[0]), values)
            self._residuals[sku, op] = bind(overlay.learned[op], frozen, op, overlay.path, None)
        return self._residuals[sku, op]


def _defaults(kind: Kind) -> dict[str, Sourced]:
    """What every device of the kind is taken to have unless something says otherwise."""
    values: dict[str, Sourced] = {}
    for parameter in kind.parameters:
        if parameter.default is not None:
            values[parameter.name] = parameter.default
        values.update({f"{parameter.name}.{key}": value for key, value in parameter.defaults.items()})
    return values


def api_names() -> list[str]:
    """Every API profile's name."""
    return sorted(path.stem for path in (HERE / "apis").glob("*.yaml"))


@cache
def api_profile(name: str) -> ApiProfile:
    """The API called ``name``; InputError with the nearest right name otherwise."""
    if name not in api_names():
        raise InputError(f"unknown API '{name}'", expected=one_of(api_names()), nearest=nearest(name, api_names()))
    path = HERE / "apis" / f"{name}.yaml"
    reader = _FileReader(path, {parameter.name: parameter for parameter in API_PARAMETERS}, "API profile")
    document = reader.document
    required = ("schema", "api", "doc", "kinds", "features", "sources", "values")
    top = reader.mapping((), required=required, optional=("numbers",))
    reader.same(("api",), name)
    return ApiProfile(
        name=name,
        doc=str(top["doc"]),
        kinds=tuple(reader.words(("kinds",))),
        features=frozenset(reader.words(("features",))),
        values=reader.values(document.data["values"], ("values",)),
        numbers=reader.numbers() if "numbers" in top else Numbers(),
    )


@lru_cache(maxsize=256)
def _read_spec(path: Path) -> DeviceSpec:
    reader = _FileReader(path, {}, "SKU file")
    top = reader.mapping(
        (),
        required=("schema", "sku", "kind", "vendor", "name", "apis", "sources", "values"),
        optional=("notes", "lineage"),
    )
    reader.same(("sku",), path.stem)
    try:
        kind = find_kind(str(top["kind"]))
    except InputError as error:
        raise error.at(reader.document.where(("kind",))) from None
    reader.parameters = {parameter.name: parameter for parameter in kind.parameters}
    values = reader.values(top["values"], ("values",))
    _require(kind, values, reader.document)
    if {"idle_power_w", "max_power_w"} <= set(values) and values["idle_power_w"].value > values["max_power_w"].value:
        raise InputError(
            "idle power is above the most the device draws",
            where=reader.document.where(("values", "idle_power_w")),
            expected="idle_power_w <= max_power_w",
        )
    apis = reader.words(("apis",))
    if not apis:
        raise InputError("no API reaches this", where=reader.document.where(("apis",)), expected="at least one")
    for i, api in enumerate(apis):
        if api not in api_names():
            raise InputError(
                f"unknown API '{api}'",
                where=reader.document.where(("apis", i)),
                expected=one_of(api_names()),
                nearest=nearest(api, api_names()),
            )
        if kind.name not in api_profile(api).kinds:
            raise InputError(
                f"the API '{api}' does not reach a {kind.name}",
                where=reader.document.where(("apis", i)),
                expected=one_of([name for name in api_names() if kind.name in api_profile(name).kinds]),
            )
    return DeviceSpec(
        sku=path.stem,
        kind=kind.name,
        vendor=str(top["vendor"]),
        name=str(top["name"]),
        apis=tuple(apis),
        values=values,
        notes=tuple(reader.words(("notes",))) if "notes" in top else (),
        lineage=reader.lineage() if "lineage" in top else Lineage(),
    )


def _require(kind: Kind, values: Mapping[str, Sourced], document: Document) -> None:
    for parameter in kind.parameters:
        given = parameter.name in values or any(path.startswith(f"{parameter.name}.") for path in values)
        if parameter.required and not given:
            raise InputError(
                f"a {kind.name} needs '{parameter.name}' ({parameter.doc})",
                where=document.where(("values",)),
                expected=f"a value in {parameter.unit} with its source",
            )


@lru_cache(maxsize=256)
def shipped_overlay(sku: str, kind: str) -> Overlay | None:
    """The calibration that comes with the models, or None where the SKU was never measured."""
    path = HERE / "calibration" / f"{sku}.yaml"
    return read_overlay(path, sku, kind) if path.is_file() else None


def read_overlay(path: Path, sku: str, kind: str) -> Overlay:
    """What was fitted to ``sku``, a device of ``kind``, from a calibration file.

    Raises InputError for an overlay that was fitted to another SKU.
    """
    parameters = {parameter.name: parameter for parameter in find_kind(kind).parameters}
    reader = _FileReader(path, parameters, "calibration overlay")
    top = reader.mapping((), required=("schema", "sku", "sources", "values"), optional=("api", "fit", "learned"))
    if top["sku"] != sku:
        raise InputError(f"this overlay is of '{top['sku']}'", where=reader.document.where(("sku",)), expected=sku)
    return Overlay(
        sku,
        reader.values(top["values"], ("values",)) if top["values"] else {},
        reader.learned() if "learned" in top else {},
        reader.fits() if "fit" in top else {},
        path,
        str(top["api"]) if "api" in top else None,
    )


class _FileReader:
    """Reads one SKU, API or overlay file; every error carries the file, line, column and field."""

    def __init__(self, path: Path, parameters: Mapping[str, Parameter], what: str) -> None:
        self.document = parse(read_text(path, what), str(path))
        self.parameters = parameters
        self.what = what
        if not isinstance(self.document.data, dict):
            raise InputError(f"this {what} is not a mapping", where=self.document.where(()), expected="keys and values")
        if self.document.data.get("schema") != 1 or self.document.data["schema"] is True:
            raise InputError(
                f"this {what} has schema {self.document.data.get('schema')!r}",
                where=self.document.where(("schema",)),
                expected="schema: 1",
            )

    def mapping(
        self, path: tuple[str | int, ...], *, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The mapping at ``path``, checked to have the keys it must and no other."""
        data: Any = self.document.data
        for part in path:
            data = data[part]
        if not isinstance(data, dict):
            raise InputError("this is not a mapping", where=self.document.where(path), expected=one_of(required))
        allowed = [*required, *optional]
        for key in data:
            if key not in allowed:
                raise InputError(
                    f"unknown key '{key}'",
                    where=self.document.where((*path, key), key=True),
                    expected=one_of(allowed),
                    nearest=nearest(key, allowed),
                )
        for key in required:
            if key not in data:
                raise InputError(f"'{key}' is missing", where=self.document.where(path), expected=one_of(required))
        return data

    def same(self, path: tuple[str | int, ...], expected: str) -> None:
        """The name inside a file is the file's own."""
        data: Any = self.document.data
        for part in path:
            data = data[part]
        if data != expected:
            raise InputError(
                f"'{data}' differs from the file's name", where=self.document.where(path), expected=expected
            )

    def words(self, path: tuple[str | int, ...]) -> list[str]:
        """The list of words at ``path``."""
        data: Any = self.document.data
        for part in path:
            data = data[part]
        if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
            raise InputError("this is not a list of words", where=self.document.where(path), expected="[word, ...]")
        return list(data)

    def lineage(self) -> Lineage:
        """What the silicon descends from: ``{die, architecture, since, memory}``, any of them left out."""
        entry = self.mapping(("lineage",), required=(), optional=("die", "architecture", "since", "memory"))
        for key, value in entry.items():
            wanted = int if key == "since" else str
            slip = not isinstance(value, wanted) or isinstance(value, bool)
            if not slip and key == "memory" and not re.match(_MEMORY, str(value), re.IGNORECASE):
                raise InputError(
                    f"'{value}' is no memory technology that is known here",
                    where=self.document.where(("lineage", key)),
                    expected="HBM, GDDR, LPDDR or DDR with its generation, such as HBM3e",
                    nearest=nearest(str(value).upper(), ("HBM2", "HBM2e", "HBM3", "HBM3e", "GDDR6", "GDDR7", "LPDDR5")),
                )
            if slip or (key == "since" and not 1990 <= int(value) <= 2100):
                raise InputError(
                    f"'{key}' is {value!r}",
                    where=self.document.where(("lineage", key)),
                    expected="a year" if key == "since" else "a word, in quotes where YAML reads it otherwise",
                )
        return Lineage(**entry)

    def numbers(self) -> Numbers:
        """How kernels' numbers are done: ``{lacks, tf32, subnormals}``, any left out, each with its source."""
        words = {
            "lacks": KERNEL_TYPES, "tf32": ("nearest-even", "nearest-away"), "subnormals": ("kept", "flushed"),
        }  # fmt: skip
        stated: dict[str, Stated] = {}
        for name in self.mapping(("numbers",), required=(), optional=tuple(words)):
            here = ("numbers", name)
            entry = self.mapping(here, required=("value",), optional=("source", "provenance", "reason"))
            given = self.words((*here, "value")) if name == "lacks" else [entry["value"]]
            for word in given:
                if word not in words[name]:
                    raise InputError(
                        f"'{word}' is not what '{name}' may be",
                        where=self.document.where((*here, "value")),
                        expected=one_of(words[name], 20),
                        nearest=nearest(str(word), words[name]),
                    )
            source, provenance = "assumed", Provenance.ASSUMED
            if "source" in entry:
                source, provenance = self.source(entry["source"], (*here, "source"))
            elif not entry.get("reason") or entry.get("provenance") != "assumed":
                raise InputError(
                    f"'{name}' needs its source",
                    where=self.document.where(here),
                    expected="source: NAME, or provenance: assumed with a reason",
                )
            stated[name] = Stated(" ".join(given), provenance, source, entry.get("reason"))
        plain = {name: one.value for name, one in stated.items() if name != "lacks"}
        lacks = stated["lacks"].value.split() if "lacks" in stated else ()
        return Numbers(lacks=frozenset(lacks), stated=stated, **plain)

    def learned(self) -> dict[str, LearnedEntry]:
        """Residuals by operation: ``{form, measurements, source}`` and what the form needs."""
        found: dict[str, LearnedEntry] = {}
        for op in self.mapping(("learned",), required=(), optional=tuple(OPERATIONS)):
            needs = {"points": ("points", "scales"), "arrays": ("file",)}
            here = ("learned", op)
            stated = self.document.data["learned"][op]
            form = stated.get("form") if isinstance(stated, dict) else None
            if not isinstance(stated, dict):
                raise InputError("this is not a mapping", where=self.document.where(here), expected="form: points")
            if form not in needs:
                raise InputError(
                    f"'{form}' is no form of a residual",
                    where=self.document.where((*here, "form")),
                    expected=one_of(needs),
                    nearest=nearest(str(form), needs),
                )
            may = ("law",) if form == "points" else ()
            entry = self.mapping(here, required=("form", "measurements", "source", *needs[form]), optional=may)
            text, provenance = self.source(entry["source"], (*here, "source"))
            count = entry["measurements"]
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise InputError(
                    f"this is {count!r}", where=self.document.where((*here, "measurements")), expected="a count"
                )
            laws = self.laws((*here, "law"), entry["law"]) if "law" in entry else {}
            found[op] = LearnedEntry(form, entry, Sourced(float(count), provenance, text), laws)
        return found

    def laws(self, path: tuple[str | int, ...], stated: Any) -> dict[str, Law]:
        """Sums of launch, bytes and operations by choices: ``{launch_s, bytes_per_s, flops_per_s}``, one at least."""
        if not isinstance(stated, dict):
            raise InputError("this is not a mapping", where=self.document.where(path), expected="choices to numbers")
        found: dict[str, Law] = {}
        for key in stated:
            here = (*path, key)
            entry = self.mapping(here, required=(), optional=tuple(UNITS))
            numbers = {
                name: self.number(value, (*here, name), Parameter(name, UNITS[name], ""))
                for name, value in entry.items()
            }
            try:
                found[str(key)] = Law.of(numbers)
            except ValueError as error:
                raise InputError(str(error), where=self.document.where(here), expected=one_of(UNITS)) from None
        return found

    def fits(self) -> dict[str, Fit]:
        """How each operation's fit did, by operation."""
        found: dict[str, Fit] = {}
        for op in self.mapping(("fit",), required=(), optional=tuple(OPERATIONS)):
            entry = self.mapping(
                ("fit", op), required=("rows",), optional=("held_out", "inside", "half_width", "split", "note")
            )
            found[op] = Fit(op, **entry)
        return found

    def values(self, data: Any, path: tuple[str | int, ...]) -> dict[str, Sourced]:
        """Parameters (and tables of them) at ``path``, flattened: ``name`` or ``name.key`` to a Sourced value."""
        if not isinstance(data, dict):
            raise InputError("this is not a mapping", where=self.document.where(path), expected="parameters")
        found: dict[str, Sourced] = {}
        for name, entry in data.items():
            here = (*path, name)
            parameter = self.parameters.get(name)
            if parameter is None:
                raise InputError(
                    f"unknown parameter '{name}'",
                    where=self.document.where(here, key=True),
                    expected=one_of(self.parameters, 40),
                    nearest=nearest(name, self.parameters),
                )
            if not parameter.keys:
                found[name] = self.sourced(entry, here, parameter)
                continue
            if not isinstance(entry, dict) or "value" in entry:
                raise InputError(
                    f"'{name}' is a table",
                    where=self.document.where(here),
                    expected=one_of(parameter.keys, 20),
                )
            for key, item in entry.items():
                if key not in parameter.keys:
                    raise InputError(
                        f"'{key}' is not a key of {name}",
                        where=self.document.where((*here, key), key=True),
                        expected=one_of(parameter.keys, 20),
                        nearest=nearest(key, parameter.keys),
                    )
                found[f"{name}.{key}"] = self.sourced(item, (*here, key), parameter)
        return found

    def sourced(self, entry: Any, path: tuple[str | int, ...], parameter: Parameter) -> Sourced:
        """One value with its source: ``{value, source}`` or ``{value, provenance: assumed, low, high, reason}``."""
        where = self.document.where(path)
        if not isinstance(entry, dict):
            raise InputError("a number needs its source", where=where, expected="{value: ..., source: ...}")
        self.mapping(path, required=("value",), optional=("source", "provenance", "low", "high", "reason"))
        value = self.number(entry["value"], (*path, "value"), parameter)
        low = self.number(entry["low"], (*path, "low"), parameter) if "low" in entry else None
        high = self.number(entry["high"], (*path, "high"), parameter) if "high" in entry else None
        source, provenance = "assumed", Provenance.ASSUMED
        if "source" in entry:
            source, provenance = self.source(entry["source"], (*path, "source"))
        if "provenance" in entry:
            provenance = self.provenance(entry["provenance"], (*path, "provenance"))
        try:
            return Sourced(value, provenance, source, low, high, entry.get("reason"))
        except ValueError as error:
            raise InputError(str(error), where=where, expected="low <= value <= high, and a reason") from None

    def number(self, data: Any, path: tuple[str | int, ...], parameter: Parameter) -> float:
        """A quantity in the parameter's dimension."""
        try:
            if isinstance(data, (int, float)) and not isinstance(data, bool) and is_dimensionless(parameter.unit):
                number = float(data)
            else:
                number = parse_quantity(str(data), parameter.unit)
            # A device may take no time, draw nothing or lack a unit; a rate or a size of nothing is a slip of the pen.
            may_be_zero = parameter.unit in ("1", "s", "W", "J", "USD/h")
            if not 0 <= number < math.inf or (number == 0 and not may_be_zero):
                raise InputError(f"this is {data}", expected="zero or more" if may_be_zero else "more than zero")
            return number
        except OverflowError:
            raise InputError("this is too large", where=self.document.where(path), expected="a number") from None
        except InputError as error:
            raise error.at(self.document.where(path)) from None

    def source(self, key: Any, path: tuple[str | int, ...]) -> tuple[str, Provenance]:
        """The text and provenance of a source named in the file's ``sources``."""
        sources = self.document.data["sources"]
        if not isinstance(sources, dict):
            raise InputError("this is not a mapping", where=self.document.where(("sources",)), expected="name: {...}")
        if not isinstance(key, str) or key not in sources:
            raise InputError(
                f"unknown source '{key}'",
                where=self.document.where(path),
                expected=one_of(sources) if sources else "a source under `sources:`",
                nearest=nearest(str(key), sources),
            )
        self.mapping(("sources", key), required=("text", "provenance"))
        entry = sources[key]
        return str(entry["text"]), self.provenance(entry["provenance"], ("sources", key, "provenance"))

    def provenance(self, word: Any, path: tuple[str | int, ...]) -> Provenance:
        """A provenance by its word."""
        if not isinstance(word, str) or word not in PROVENANCES:
            raise InputError(
                f"'{word}' is not a provenance",
                where=self.document.where(path),
                expected=one_of(PROVENANCES),
                nearest=nearest(str(word), PROVENANCES),
            )
        return Provenance.from_label(word)
