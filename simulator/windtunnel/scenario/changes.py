"""Reads a scenario file as data, and makes ``PATH=VALUE`` changes to it."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.renamed import RENAMED
from windtunnel.core.yamlfile import Document, dump_line, format_path, parse, read_text

NodePath = tuple[str | int, ...]


def read_document(
    path: Path, changes: Sequence[str] = (), *, seed: int | None = None, outside_code: bool = False
) -> Document:
    """Return the scenario file ``path`` as data, with ``changes`` made to it; it is not checked yet.

    ``outside_code``: its policy may be code in a file outside of its folder.
    """
    document = parse(read_text(path, "scenario"), str(path))
    document.outside_code = outside_code
    for change in changes:
        apply_change(document, change)
    if seed is not None and isinstance(document.data, dict):
        document.data["seed"] = seed
        document.changes["seed",] = "--seed"
    return document


def apply_change(document: Document, change: str, option: str = "--set") -> None:
    """Make one ``PATH=VALUE`` change to the data of ``document``. The value is read as YAML; errors name ``option``.

    Raises:
        InputError: The text is not a change, or the scenario has no such path.
    """
    text, equals, raw = change.partition("=")
    path = parse_path(text.strip())
    written = f"{option} {change}"
    if path[:1] == ("with",) and option == "--set":
        written = f"--with {change.strip().removeprefix('with.')}"
    where = Location(written, field=format_path(path) or None)
    if not equals or not path:
        raise InputError("this is not a change", where=where, expected="PATH=VALUE, such as fleet[0].count=3")
    set_value(document, path, parse(raw, written).data, where)


def set_value(document: Document, path: NodePath, value: object, where: Location) -> None:
    """Set the value at ``path`` of the data of ``document``, which then comes from ``where``.

    Raises:
        InputError: The scenario has no such path.
    """
    data: Any = document.data
    for i in range(len(path) - 1):
        if path[0] == "with" and isinstance(data, dict) and isinstance(path[i], str):
            data.setdefault(path[i], {})  # hardware that is not for sale need not be named before
        data = _part(data, path, i, where)
        if data is None:
            raise InputError(f"'{format_path(path[: i + 1])}' is empty", where=where)
    last = path[-1]
    if isinstance(data, str):
        raise _has_no_parts(data, path[:-1], where)
    inside = isinstance(data, list) and isinstance(last, int) and last < len(data)
    if isinstance(data, list) and not inside:
        raise _not_in_list(data, path, where)
    if not inside and not (isinstance(data, dict) and isinstance(last, str)):
        raise InputError(f"there is no '{format_path(path)}' in the scenario", where=where)
    data[last] = value
    # The value and its parts now come from there, and not from a line of the file.
    for places in (document.marks, document.key_marks, document.changes):
        for inner in [inner for inner in places if inner[: len(path)] == path]:
            del places[inner]
    document.changes[path] = where.file or ""


def put_value(document: Document, path: NodePath, value: object, where: Location) -> None:
    """Set a value as ``set_value`` does; mappings that the scenario leaves out, such as ``group``, are added."""
    data: Any = document.data
    for part in path[:-1]:
        if isinstance(data, dict) and isinstance(part, str) and data.get(part) is None:
            data[part] = {}
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break  # ``set_value`` names what is missing
    set_value(document, path, copy.deepcopy(value), Location(str(where)))


def copied(document: Document) -> Document:
    """Return a copy of a document that can be changed."""
    return replace(
        document,
        data=copy.deepcopy(document.data),
        marks=dict(document.marks),
        key_marks=dict(document.key_marks),
        changes=dict(document.changes),
    )


def differences(original: Document, varied: Document) -> list[str]:
    """Return the differences of two documents as the ``PATH=VALUE`` of ``--set``, which make the one of the other."""
    return list(_differences(original.data, varied.data, ()))


def _differences(before: Any, after: Any, path: NodePath) -> list[str]:
    if before == after and type(before) is type(after):
        return []
    if isinstance(before, dict) and isinstance(after, dict) and set(before) <= set(after):
        return [text for key in after for text in _differences(before.get(key), after[key], (*path, key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for number, (b, a) in pairs for text in _differences(b, a, (*path, number))]
    return [f"{format_path(path)}={dump_line(after)}"]


def _part(data: Any, path: NodePath, depth: int, where: Location) -> Any:
    """Return the value at ``path[depth]`` of ``data``. Raises InputError with the nearest name if there is none."""
    part = path[depth]
    try:
        return data[part]
    except (KeyError, IndexError, TypeError):
        pass
    if isinstance(data, str):
        raise _has_no_parts(data, path[:depth], where)
    if isinstance(data, list):
        raise _not_in_list(data, path[: depth + 1], where)
    keys = list(data) if isinstance(data, dict) else []
    for words in RENAMED.values():
        new = words.get(str(part))
        if new in keys:
            raise InputError(f"'{part}' was renamed to '{new}'", where=where, expected=f"'{new}'")
    close = nearest(str(part), keys)
    whole = ""
    if close is None and isinstance(data, dict) and isinstance(part, str):
        whole = f", or the whole of it: {format_path(path[: depth + 1])}={{{format_path(path[depth + 1 :])}: ...}}"
    raise InputError(
        f"there is no '{format_path(path[: depth + 1])}' in the scenario",
        where=where,
        expected=f"{list_choices(keys)}{whole}" if keys else None,
        nearest=close,
    )


def _not_in_list(data: Sequence[object], path: NodePath, where: Location) -> InputError:
    """Return the error for a path whose last part is no index of the list ``data``."""
    of, last = format_path(path[:-1]), len(data) - 1
    shown = "an empty list" if last < 0 else f"{of}[0]" if last == 0 else f"{of}[0] to {of}[{last}]"
    return InputError(f"there is no '{format_path(path)}' in the scenario", where=where, expected=shown)


def _has_no_parts(text: str, path: NodePath, where: Location) -> InputError:
    return InputError(
        f"'{format_path(path)}' is '{text}' in the scenario, which has no keys",
        where=where,
        expected=f"{format_path(path)}=VALUE",
    )


def parse_path(text: str) -> NodePath:
    """Return the keys and indices of a path such as ``fleet[0].count``."""
    pieces = text.replace("[", ".").replace("]", "").split(".")
    return tuple(int(piece) if re.fullmatch("[0-9]{1,9}", piece) else piece for piece in pieces if piece)
