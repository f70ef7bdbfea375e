"""A design: a scenario with other values of some controls, as data that a file can hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.units import parse_quantity
from windtunnel.core.yamlfile import Document, dump, dump_line, format_path, parse
from windtunnel.explorer.controls import LENGTHS, Value
from windtunnel.scenario.changes import NodePath, copied, differences, parse_path, put_value
from windtunnel.scenario.program import Generate, flattened
from windtunnel.scenario.read import check_scenario

Changes = Mapping[str, Value]
"""Values that differ from those of the scenario, by the name of the control."""

_OF_THE_DEVICE = ("price", "calibration", "memory", "chip", "resident", "power", "node")
"""Keys of a fleet entry that describe its device, and so go when another one is chosen."""
_EMPTY: dict[str, dict[str, object]] = {"power": {}, "node": {}}  # they may not be null
_OF_THE_MODEL = ("weights", "kv_dtype", "dispatch", "clock", "speculation", "adapters")
_GROUP = ("tensor", "pipeline", "attention_data", "expert")
_NUMBERS = ("replicas", "tokens", "size", "memory", *_GROUP)
_TARGET = re.compile(r"(.*?(?:<=|>=|<|>|==|=)\s*).*")


def checked_changes(data: object, names: list[str]) -> Changes:
    """Return changes that came from a page.

    Raises:
        InputError: They are no mapping from names of controls to plain values.
    """
    if not isinstance(data, dict):
        raise InputError("these are no changes", expected="a mapping from controls to values")
    for name, value in data.items():
        if name not in names:
            raise InputError(
                f"there is no control '{name}'", expected=list_choices(names), nearest=nearest(str(name), names)
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise InputError(f"{value!r} is no value of a control", where=Location(field=name))
        if isinstance(value, str) and len(value) > 200:
            raise InputError("this value is too long", where=Location(field=name), expected="at most 200 characters")
    return data


def design(original: Document, changes: Changes) -> Document:
    """Return the scenario ``original`` with ``changes`` made to it. It is not checked yet.

    Raises:
        InputError: A value is not one of its control.
    """
    document = copied(original)
    removed = []
    for name in sorted(changes, key=_order):
        value, path = changes[name], parse_path(name)
        if path[0] == "fleet":
            entry = int(path[1])
            _set_of_entry(document, original, entry, ".".join(map(str, path[2:])), value, changes)
            if path[2] == "replicas" and _number(name, value) == 0:
                removed.append(entry)
        elif path[0] == "models" and path[-1] in ("catalogue", "weights"):
            _set_model(document, str(path[1]), str(path[-1]), value)
        elif path[0] == "targets":
            stated = document.data["targets"][int(path[1])]
            head = _TARGET.sub(r"\1", stated)
            _put(document, path, head + str(value))
        elif name not in ("load", *LENGTHS):
            _put(document, path, _number(name, value) if path[-1] in _NUMBERS else value)
    if removed:
        kept = [entry for number, entry in enumerate(document.data["fleet"]) if number not in removed]
        if not kept:
            raise InputError("no device is left in the fleet", expected="at least one", where=Location(field="fleet"))
        _put(document, ("fleet",), kept)
    for name, key in LENGTHS.items():
        if name in changes:
            _lengthen(document, key, _factor(name, changes[name], 0.01, 100))
    if "load" in changes:
        _scale(document, _factor("load", changes["load"], 0.001, 1000))
    return document


def _order(name: str) -> tuple[int, str]:
    """Return the place of a change: the device and the group of an entry before the number of its replicas."""
    last = parse_path(name)[-1]
    return ({"catalogue": 0, "device": 0, "replicas": 3, "load": 4}.get(str(last), 1), name)


def _put(document: Document, path: NodePath, value: object) -> None:
    put_value(document, path, value, Location(f"--set {format_path(path)}={dump_line(value)}"))


def _number(name: str, value: Value) -> Value:
    """Return a typed number as ``--set`` reads it."""
    return parse(value, f"--set {name}={value}").data if isinstance(value, str) else value


def _factor(name: str, value: Value, least: float, most: float) -> float:
    where = Location(field=name)
    try:
        factor = parse_quantity(str(value), "1")
    except InputError as error:
        raise error.at(where) from None
    if not least <= factor <= most:
        expected = f"{least * 100:g}% to {most * 100:,g}%; 100% is the scenario's"
        raise InputError(f"{name} is {factor * 100:g}%", where=where, expected=expected)
    return factor


def _lengthen(document: Document, key: str, factor: float) -> None:
    """Multiply the lengths of all requests. Raises InputError for a scenario that is not valid."""
    if factor == 1.0:
        return
    stages = [s for program in check_scenario(document).programs for s in flattened(program) if isinstance(s, Generate)]
    # A repeated stage stands once in the document.
    for path, before in {stage.path: float(getattr(stage, key)) for stage in stages}.items():
        _put(document, (*path, key), _rounded(before * factor))


def _scale(document: Document, factor: float) -> None:
    """Multiply the arrivals of all workloads. Raises InputError for a scenario that is not valid."""
    if factor == 1.0:
        return
    for number, workload in enumerate(check_scenario(document).workload):
        before = workload.arrivals.model_dump(mode="json", by_alias=True)
        try:
            after = workload.arrivals.scaled(factor).model_dump(mode="json", by_alias=True)
        except InputError as error:
            raise error.at(document.where(("workload", number, "arrivals"))) from None
        for key, value in after.items():
            if value != before[key]:
                _put(document, ("workload", number, "arrivals", key), _rounded(value))


def _rounded(value: Any) -> Any:
    """Return numbers, also those of quantities, with six significant digits, which is how a file is read best."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str):
        number, space, unit = value.partition(" ")
        try:
            return f"{float(number):.6g}{space}{unit}"
        except ValueError:
            return value
    return value


def _set_model(document: Document, name: str, key: str, value: Value) -> None:
    model = document.data["models"][name]
    if value == (model.get(key) if key == "catalogue" else model.get("weights") or model.get("dtype")):
        return
    if key == "catalogue":
        kept = {k: model[k] for k in _OF_THE_MODEL if k in model}
        _put(document, ("models", name), {"catalogue": value, **kept})
        return
    if model.get("dtype") is not None:  # a model has either its own number format or that of its weights
        _put(document, ("models", name, "dtype"), None)
    _put(document, ("models", name, key), value)


def _set_of_entry(
    document: Document, original: Document, number: int, key: str, value: Value, changes: Changes
) -> None:
    entry, path = document.data["fleet"][number], ("fleet", number)
    before = _devices(original.data["fleet"][number])
    if key == "device":
        if value != entry.get("device"):
            _put(document, (*path, "device"), value)
            for described in _OF_THE_DEVICE:
                if entry.get(described) is not None:
                    _put(document, (*path, described), _EMPTY.get(described))
            price = _known_price(original, value)
            if price is not None:
                _put(document, (*path, "price"), price)
    elif key == "replicas":
        count = _number(f"fleet[{number}].replicas", value)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(
                f"'{value}' is not a number of replicas",
                where=Location(field=f"fleet[{number}].replicas"),
                expected="a whole number",
            )
        _put(document, (*path, "count"), max(count, 1) * _group_size(entry))
    elif key.startswith("group."):
        if value == (entry.get("group") or {}).get(key.removeprefix("group."), 1):
            return
        _put(document, (*path, *key.split(".")), _number(f"fleet[{number}].{key}", value))
        size = _group_size(document.data["fleet"][number])
        if f"fleet[{number}].replicas" not in changes:
            _put(document, (*path, "count"), max(before // size, 1) * size)
    elif key == "price":
        _put(document, (*path, "price"), value or None)
    else:
        _put(document, (*path, *key.split(".")), value)


def _known_price(original: Document, device: Value) -> str | None:
    """Return the price that the scenario states for a device, in whichever entry."""
    prices = [e["price"] for e in original.data["fleet"] if e.get("device") == device and e.get("price") is not None]
    return prices[0] if prices else None


def _group_size(entry: Mapping[str, Any]) -> int:
    group = entry.get("group") or {}
    size = 1
    for key in ("tensor", "pipeline", "attention_data"):
        rank = group.get(key, 1)
        size *= rank if isinstance(rank, int) and rank > 0 else 1
    return size


def _devices(entry: Mapping[str, Any]) -> int:
    count = entry.get("count")
    return count if isinstance(count, int) else _group_size(entry)


def effective(document: Document, changes: Changes) -> dict[str, Value]:
    """Return the values of controls that follow from others, by name: the replicas of groups, and prices."""
    values: dict[str, Value] = {}
    if any(changes.get(f"fleet[{n}].replicas") == 0 for n in range(len(document.data["fleet"]) + len(changes))):
        return values  # the entries that are left have other numbers
    for number, entry in enumerate(document.data["fleet"]):
        values[f"fleet[{number}].replicas"] = _devices(entry) // _group_size(entry)
        values[f"fleet[{number}].price"] = entry.get("price")
    return values


def write(original: Document, changes: Changes) -> Path:
    """Write a design as a new scenario beside the original one, and return its path. No file is overwritten.

    Raises:
        InputError: The design is not valid, or the file cannot be written.
    """
    varied = design(original, changes)
    check_scenario(replace(varied, file=original.file))
    source = Path(original.file)
    head = [f"# {source.name}, as `windtunnel explore` varied it:"]
    head += [f"#   {text}" for text in differences(original, varied)] or ["#   nothing was changed"]
    text = "\n".join(head) + "\n" + dump(varied.data)
    for path in _free_names(source):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(
                f"the scenario cannot be written: {error.strerror or error}",
                where=Location(str(path)),
                expected="a folder that can be written to",
            ) from None
        return path
    raise InputError(
        "too many explored scenarios are beside this one", where=Location(original.file), expected="fewer of them"
    )


def _free_names(source: Path) -> list[Path]:
    suffixes = ["explored", *(f"explored-{n}" for n in range(2, 1000))]
    return [source.with_name(f"{source.stem}-{suffix}.yaml") for suffix in suffixes]
