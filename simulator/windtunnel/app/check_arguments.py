"""The arguments of `windtunnel check`: what ``--arg NAME=SPEC`` says, and what is made where nothing is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.language.types import ALIASES, SCALARS
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer

KINDS = ("zeros", "ones", "arange", "empty", "random", "local")
_EXPECTED = "a number, zeros:N, ones:N, arange:N, empty:N, random:N[:SEED] or local:N, each with an optional :dtype"
_MAX_BYTES = 1 << 32


@dataclass(frozen=True)
class CheckParameter:
    """A parameter of a kernel.

    Attributes:
        name: Its name.
        kind: ``pointer``, ``local`` (a pointer to memory of a block) or ``number``.
        dtypes: The types of the numbers of one element, or of the number.
        size: Bytes of one element.
        sides: Sides of an array; 1 for a pointer of C.
        offsets: Where the numbers of one element lie, in bytes; by their alignment if it is empty.
        members: The names of the numbers of a struct or vector that is passed by value, such as ``size.x``.
    """

    name: str
    kind: str
    dtypes: tuple[np.dtype[Any], ...]
    size: int
    sides: int = 1
    offsets: tuple[int, ...] = ()
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchRequest:
    """One launch that is asked for.

    Attributes:
        file: The kernel's file.
        kernel: Its name; None if the file has one only.
        grid: Blocks (groups) along x, y and z.
        block: Threads (work-items) of a block along x, y and z.
        arguments: What ``--arg`` says, by name.
        shared_bytes: Bytes of dynamic shared memory; None if they are not stated.
        defines: Macros.
        include: Folders of headers.
        where: The place of the request, for messages.
    """

    file: Path
    kernel: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    shared_bytes: int | None = None
    defines: Sequence[str] = ()
    include: Sequence[str] = ()
    where: Location = field(default_factory=Location)


@dataclass(frozen=True)
class MadeUp:
    """What arguments that are not stated are made of.

    Attributes:
        elements: The number of elements along x; None for that of the threads.
        positive: Whether integers in buffers are not zero.
        numbers: Values of integers, by name; others are the number of elements.
        counts: Elements of buffers and ``__local`` memory, by name; others have as many as there are elements.
        shared_bytes: Bytes of dynamic shared memory.
        integer: The value of other integers; None for the number of elements.
        reason: Why they do not have the number of elements; empty where they do.
        filled: The buffers of one number, and that number.
        rising: The buffers of rising numbers, with one more than there are elements.
        spaced: The buffers of distinct numbers, and by how much these differ at least.
        accessed: The elements for which memory has become larger, by name.
    """

    elements: int | None = None
    positive: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    integer: int | None = None
    reason: str = ""
    filled: Mapping[str, int] = field(default_factory=dict)
    rising: frozenset[str] = frozenset()
    spaced: Mapping[str, int] = field(default_factory=dict)
    accessed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """What an argument is to be. ``kind`` is one of ``KINDS``, ``number``, or ``name`` (the buffer of another name)."""

    kind: str
    count: int = 0
    value: float | int = 0
    seed: int = 0
    dtype: np.dtype[Any] | None = None
    name: str = ""


def parsed(text: str, where: Location) -> Spec:
    """Return what a SPEC says. Raises InputError."""
    kind, *rest = str(text).strip().split(":")
    if kind not in KINDS:
        return _number(str(text), kind, rest, where)
    dtype = None
    if len(rest) > 1 and not rest[-1].lstrip("-").isdigit():
        dtype = dtype_of(rest.pop(), where)
    if not rest or len(rest) > (2 if kind == "random" else 1) or not all(part.isdigit() for part in rest):
        raise InputError(f"'{text}' is no argument", where=where, expected=_EXPECTED)
    seed = int(rest[1]) if len(rest) > 1 else 0
    return Spec(kind, int(rest[0]), seed=seed, dtype=dtype)


def _number(text: str, first: str, rest: Sequence[str], where: Location) -> Spec:
    is_number = first[:1].isdigit() or first[:1] in "+-."
    dtype = dtype_of(rest[0], where) if len(rest) == 1 and is_number else None
    for read in (lambda t: int(t, 0), float):
        try:
            value = read(first) if len(rest) <= 1 else None
        except ValueError:
            continue
        if value is not None:
            return Spec("number", value=value, dtype=dtype)
    if first in ("true", "false") and not rest:
        return Spec("number", value=int(first == "true"))
    if first.isidentifier() and not rest:
        return Spec("name", name=first)
    close = nearest(first, KINDS)
    raise InputError(f"'{text}' is no argument", where=where, expected=_EXPECTED, nearest=close)


def dtype_of(name: str, where: Location) -> np.dtype[Any]:
    """Return the type of a name: NumPy's, the kernel language's, or C's. Raises InputError."""
    c_names = {"float": "float32", "double": "float64", "half": "float16", "char": "int8", "uchar": "uint8",
               "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32", "long": "int64",
               "ulong": "uint64"}  # fmt: skip
    if name in SCALARS or name in ALIASES:
        return (SCALARS.get(name) or ALIASES[name]).dtype
    try:
        made = np.dtype(c_names.get(name, name))
    except TypeError:
        made = np.dtype(object)
    if made.kind not in "biuf":
        raise InputError(
            f"'{name}' is no type of numbers",
            where=where,
            expected="such as int32, float32",
            nearest=nearest(name, SCALARS),
        )
    return made


def array_of(spec: Spec, parameter: CheckParameter, where: Location) -> np.ndarray | None:
    """Return the contents of a buffer; None for an uninitialised one. Raises InputError if it is too large."""
    count = spec.count if spec.dtype is not None else spec.count * len(parameter.dtypes)
    size = spec.dtype.itemsize if spec.dtype is not None else parameter.size
    if spec.count * size > _MAX_BYTES:
        raise InputError(
            f"{spec.count * size:,} bytes for '{parameter.name}'", where=where, expected=f"at most {_MAX_BYTES:,}"
        )
    if spec.kind == "empty":
        return None
    if spec.kind == "zeros":
        numbers = np.zeros(count, np.int64)
    elif spec.kind == "ones":
        numbers = np.ones(count, np.int64)
    elif spec.kind == "arange":
        numbers = np.arange(count, dtype=np.int64)
    else:
        numbers = np.random.default_rng(spec.seed).integers(0, max(spec.count, 1), count)
    if spec.dtype is not None:
        return numbers.astype(spec.dtype)
    return elements(numbers, parameter)


def elements(numbers: np.ndarray, parameter: CheckParameter) -> np.ndarray:
    """Return numbers as the elements of a parameter: each has one number of each of its types."""
    kinds = set(parameter.dtypes)
    if len(kinds) == 1 and parameter.size == len(parameter.dtypes) * parameter.dtypes[0].itemsize:
        return numbers.astype(parameter.dtypes[0])
    return packed(numbers.reshape(-1, len(parameter.dtypes)), parameter)


def packed(rows: np.ndarray, parameter: CheckParameter) -> np.ndarray:
    """Return rows of numbers as bytes of structs, with padding as C lays it out."""
    offset, offsets = 0, []
    for dtype in parameter.dtypes:
        offset += -offset % dtype.itemsize
        offsets.append(offset)
        offset += dtype.itemsize
    out = np.zeros((len(rows), parameter.size), np.uint8)
    for column, (dtype, at) in enumerate(zip(parameter.dtypes, parameter.offsets or offsets, strict=True)):
        values = np.ascontiguousarray(rows[:, column].astype(dtype)).view(np.uint8).reshape(len(rows), -1)
        out[:, at : at + dtype.itemsize] = values
    return out.reshape(-1)


def default_array(parameter: CheckParameter, sides: Sequence[int], below: int, positive: bool) -> np.ndarray:
    """Return the contents of a buffer of which nothing is said: random values, with sides along x, y and z.

    Integers are ``below`` a number. ``positive``: they are 1 where they would be 0.
    """
    count = math.prod(sides)
    rng = np.random.default_rng(0)
    columns = []
    for dtype in parameter.dtypes:
        if dtype.kind in "iub":
            high = below if dtype.kind == "b" or dtype.itemsize > 2 else min(below, np.iinfo(dtype).max)
            made = rng.integers(0, 2 if dtype.kind == "b" else max(high, 1), count)
            columns.append(np.maximum(made, int(positive)).astype(np.float64))
        else:
            columns.append(rng.random(count))
    rows = np.stack(columns, axis=1) if columns else np.zeros((count, 0))
    if len(set(parameter.dtypes)) == 1 and parameter.size == len(parameter.dtypes) * parameter.dtypes[0].itemsize:
        flat = rows.reshape(-1).astype(parameter.dtypes[0])
        if parameter.sides == 1:
            return flat
        return flat.reshape(sides[: parameter.sides][::-1])
    return packed(rows, parameter)


def default_number(parameter: CheckParameter, threads: int) -> Any:
    """Return the number of which nothing is said: the number of threads for an integer, 1 for a float."""
    values = default_numbers(parameter, threads)
    return values[0] if len(values) == 1 else as_record(values, parameter)


def default_numbers(parameter: CheckParameter, threads: int) -> list[Any]:
    """Return `default_number` of each number of a struct or vector."""
    return [dtype.type(1) if dtype.kind not in "iu" else _fitting(threads, dtype) for dtype in parameter.dtypes]


def _fitting(number: int, dtype: np.dtype[Any]) -> Any:
    return dtype.type(min(number, int(np.iinfo(dtype).max)))


def as_record(values: Sequence[Any], parameter: CheckParameter) -> Any:
    """Return the numbers of a struct or a vector that is passed by value."""
    data = packed(np.array([[float(value) for value in values]]), parameter)
    return np.frombuffer(data.tobytes(), np.dtype((np.void, parameter.size)))[0]


def c_options(given: Mapping[str, Any], place: Callable[[str], Location], folder: Path) -> tuple[list[str], list[str]]:
    """Return the macros and the folders of headers of a launch in a list, whose folder is given.

    Raises InputError for what is no list, such as one text, and for a folder of headers that is not there.
    """
    defines, include = (given.get(key) or [] for key in ("defines", "include"))
    if isinstance(defines, dict):
        defines = [f"{name}={value}" for name, value in defines.items()]
    for key, value, expected in (
        ("defines", defines, "[NAME=VALUE, ...] or {NAME: VALUE}"), ("include", include, "[FOLDER, ...]"),
    ):  # fmt: skip
        if not isinstance(value, list):
            raise InputError(f"{key} that is no list", where=place(key), expected=expected)
    folders = [str(folder / str(one)) for one in include]
    check_folders(folders, place("include"))
    return [str(one) for one in defines], folders


def check_folders(folders: Sequence[str], where: Location) -> None:
    """Raise InputError for a folder of headers that is not there."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(f"no folder '{folder}'", where=where, expected="a folder of headers")


def _check_type(dtype: np.dtype[Any], parameter: CheckParameter, where: Location) -> None:
    """Raise InputError for numbers of another type than those of a parameter: of another size, or of the other kind.

    Bytes may be contents of all, and bytes of C (``char *``, ``void *``) may hold all.
    """
    kinds = list(dict.fromkeys(parameter.dtypes))
    if dtype.itemsize == 1 or kinds[0].itemsize == 1:
        return
    if not any(kind.itemsize == dtype.itemsize and (kind.kind == "f") == (dtype.kind == "f") for kind in kinds):
        known = ", ".join(map(str, kinds))
        raise InputError(
            f"{dtype} for '{parameter.name}', which holds {known}", where=where, expected=f"{known}, or uint8 for bytes"
        )


def check_names(given: Mapping[str, object], parameters: Sequence[CheckParameter], where: Location) -> None:
    """Raise InputError for an argument of a name that no parameter has."""
    names = [name for parameter in parameters for name in (parameter.members or (parameter.name,))]
    for name in given:
        if name not in names:
            expected = list_choices(names) if names else "no arguments"
            raise InputError(f"no parameter '{name}'", where=where, expected=expected, nearest=nearest(name, names))


def arguments_of(
    accelerator: Accelerator,
    parameters: Sequence[CheckParameter],
    request: LaunchRequest,
    buffers: dict[str, Buffer],
    made_up: MadeUp,
) -> list[Any]:
    """Return the arguments of a launch; ``buffers`` are those of earlier launches, by name. Raises InputError."""
    check_names(request.arguments, parameters, request.where)
    sides = [g * b for g, b in zip(request.grid, request.block, strict=True)]
    if made_up.elements is not None:
        sides[0] = made_up.elements
    integer = math.prod(sides) if made_up.integer is None else made_up.integer
    made: list[Any] = []
    for parameter in parameters:
        text = request.arguments.get(parameter.name)
        where = Location(request.where.file, request.where.line, request.where.column, f"--arg {parameter.name}")
        spec = None if text is None else parsed(text, where)
        if parameter.members:
            made.append(_record(parameter, request, integer))
        elif parameter.kind == "number":
            made.append(_number_of(parameter, spec, made_up.numbers.get(parameter.name, integer), where))
        elif parameter.kind == "local":
            count = made_up.counts.get(parameter.name, math.prod(request.block))
            made.append(_local(parameter, spec, count, where))
        else:
            made.append(_buffer(accelerator, parameter, spec, sides, buffers, where, made_up))
    return made


def _record(parameter: CheckParameter, request: LaunchRequest, threads: int) -> Any:
    """Return a struct or a vector that is passed by value, of the numbers that are given for its members."""
    values = default_numbers(parameter, threads)
    for place, (name, dtype) in enumerate(zip(parameter.members, parameter.dtypes, strict=True)):
        text = request.arguments.get(name)
        if text is not None:
            where = Location(request.where.file, request.where.line, request.where.column, f"--arg {name}")
            member = CheckParameter(name, "number", (dtype,), dtype.itemsize)
            values[place] = dtype.type(_number_of(member, parsed(text, where), threads, where))
    return as_record(values, parameter)


def _number_of(parameter: CheckParameter, spec: Spec | None, threads: int, where: Location) -> Any:
    if spec is None:
        return default_number(parameter, threads)
    if spec.kind != "number":
        raise InputError(f"'{parameter.name}' is a number, not an array", where=where, expected="such as 64 or 0.5")
    dtype = parameter.dtypes[0]
    if dtype.kind in "iu" and isinstance(spec.value, float) and not spec.value.is_integer():
        raise InputError(f"{spec.value} for '{parameter.name}', an integer", where=where, expected="a whole number")
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if not int(info.min) <= int(spec.value) <= 2 ** (8 * dtype.itemsize) - 1:
            raise InputError(
                f"{spec.value} does not fit into {dtype}", where=where, expected=f"{info.min} to {info.max}"
            )
        return int(spec.value)
    return spec.value


def local_room(
    parameters: Sequence[CheckParameter],
    request: LaunchRequest,
    made: MadeUp,
    static: Mapping[str, int],
    shared_bytes: int,
) -> dict[str, int]:
    """Return the ``__local`` memory that is made up, and the elements that a device has room for.

    ``static``: the bytes of the arrays of a block, by name. ``shared_bytes``: those that a block may have.
    """
    taken = dict(static)
    local = [p for p in parameters if p.kind == "local"]
    for p in local:
        text = request.arguments.get(p.name)
        spec = None if text is None else parsed(text, request.where)
        taken[p.name] = _local(p, spec, made.counts.get(p.name, math.prod(request.block)), request.where)
    room = shared_bytes - sum(taken.values())
    return {p.name: (room + taken[p.name]) // p.size for p in local if p.name not in request.arguments}


def _local(parameter: CheckParameter, spec: Spec | None, count: int, where: Location) -> int:
    if spec is None:
        return count * parameter.size
    if spec.kind not in ("local", "empty"):
        raise InputError(f"'{parameter.name}' is local memory of a group", where=where, expected="local:N")
    return spec.count * (parameter.size if spec.dtype is None else spec.dtype.itemsize)


# Long: one case for each kind of argument.
def _buffer(
    accelerator: Accelerator,
    parameter: CheckParameter,
    spec: Spec | None,
    sides: Sequence[int],
    buffers: dict[str, Buffer],
    where: Location,
    made_up: MadeUp,
) -> Any:
    if spec is not None and spec.kind == "number":
        if spec.value == 0:
            return 0
        raise InputError(
            f"'{parameter.name}' is a pointer, not a number", where=where, expected="such as zeros:64, or 0"
        )
    if spec is not None and spec.kind == "local":
        raise InputError(f"'{parameter.name}' is no local memory", where=where, expected="such as zeros:64")
    name = parameter.name if spec is None or spec.kind != "name" else spec.name
    if name in buffers:
        return buffers[name]
    if spec is not None and spec.kind == "name":
        raise InputError(f"no buffer '{name}'", where=where, expected="the name of a buffer of an earlier launch")
    if spec is None:
        count = made_up.counts.get(name)
        if name in made_up.rising and count is None:
            count = math.prod(sides) + 1
        values = default_array(parameter, sides if count is None else [count], math.prod(sides), made_up.positive)
        if name in made_up.spaced:
            distinct = np.random.default_rng(0).permutation(values.size) * made_up.spaced[name]
            values = distinct.reshape(values.shape).astype(values.dtype)
        elif name in made_up.filled:
            values = np.full_like(values, np.array(made_up.filled[name]).astype(values.dtype))
        values = np.sort(values) if name in made_up.rising and values.ndim == 1 else values
        made = accelerator.to_device(values)
    else:
        if spec.dtype is not None:
            _check_type(spec.dtype, parameter, where)
        contents = array_of(spec, parameter, where)
        if contents is None:
            single = spec.dtype or (parameter.dtypes[0] if len(set(parameter.dtypes)) == 1 else np.dtype(np.uint8))
            size = spec.count * (parameter.size if spec.dtype is None else spec.dtype.itemsize)
            made = accelerator.empty(max(size // single.itemsize, 1), single)
        else:
            made = accelerator.to_device(contents)
    buffers[name] = made
    return made
