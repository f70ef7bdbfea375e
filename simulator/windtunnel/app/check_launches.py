"""What `windtunnel check` is to launch: sizes of a grid and a block, and a list of launches in a file."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.app.check_arguments import LaunchRequest, c_options
from windtunnel.core.errors import InputError, Location
from windtunnel.core.yamlfile import Document, parse, read_text

_KEYS = ("file", "kernel", "grid", "block", "args", "shared_bytes", "defines", "include")


def dims(text: str, option: str) -> tuple[int, ...]:
    """Return sizes along x, y and z, given as ``X[,Y[,Z]]``. Raises InputError."""
    parts = str(text).strip().strip("[]()").split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"'{text}' is no size", where=Location(field=option), expected="X[,Y[,Z]], each from 1")
    return (*(int(part) for part in parts), *(1,) * (3 - len(parts)))


def launches_of(file: Path) -> list[LaunchRequest]:
    """Return the launches that a LAUNCHES.yaml lists. Raises InputError."""
    document = parse(read_text(file, "list of launches"), str(file))
    if not isinstance(document.data, list) or not document.data:
        raise InputError(
            "no list of launches", where=document.where(()), expected="- {file, kernel, grid, block, args}"
        )
    return [_request(document, file, number) for number in range(len(document.data))]


# Long: one check for each key.
def _request(document: Document, file: Path, number: int) -> LaunchRequest:
    given = document.data[number]
    where = document.where((number,))
    if not isinstance(given, dict):
        raise InputError("this launch is no mapping", where=where, expected="{file, kernel, grid, block, args}")
    for key in given:
        if key not in _KEYS:
            raise InputError(
                f"no key '{key}' of a launch",
                where=document.where((number, key), key=True),
                expected=f"one of {', '.join(_KEYS)}",
            )
    for key in ("file", "grid", "block"):
        if key not in given:
            raise InputError(f"a launch without '{key}'", where=where, expected=f"{key}: ...")
    sizes = []
    for key in ("grid", "block"):
        value = given[key]
        text = ",".join(str(one) for one in value) if isinstance(value, list) else str(value)
        try:
            sizes.append(dims(text, key))
        except InputError as error:
            raise error.at(document.where((number, key))) from None
    arguments = given.get("args") or {}
    if not isinstance(arguments, dict):
        raise InputError("args that are no mapping", where=document.where((number, "args")), expected="{name: SPEC}")
    defines, include = c_options(given, lambda key: document.where((number, key)), file.parent)
    shared = given.get("shared_bytes")
    if shared is not None and (not isinstance(shared, int) or shared < 0):
        raise InputError(
            f"shared_bytes of {shared!r}", where=document.where((number, "shared_bytes")), expected="a number from 0"
        )
    return LaunchRequest(
        Path(os.path.normpath(file.parent / str(given["file"]))),
        given.get("kernel"),
        sizes[0],
        sizes[1],
        {str(name): str(value) for name, value in arguments.items()},
        shared,
        defines,
        include,
        where,
    )
