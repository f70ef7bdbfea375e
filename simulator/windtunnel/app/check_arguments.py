"""The arguments of `windtunnel check`: what ``--arg NAME=SPEC`` says, and what is made where nothing is said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.language.types import ALIASES, SCALARS

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


def default_array(
    parameter: CheckParameter, sides: Sequence[int], count: int | None = None, *, positive: bool = False
) -> np.ndarray:
    """Return the contents of a buffer of which nothing is said: random values, with sides along x, y and z.

    ``count``: its elements, if it is larger than that. ``positive``: integers are 1 where they would be 0.
    """
    threads = math.prod(sides)
    rng = np.random.default_rng(0)
    columns = []
    for dtype in parameter.dtypes:
        if dtype.kind in "iub":
            high = threads if dtype.kind == "b" or dtype.itemsize > 2 else min(threads, np.iinfo(dtype).max)
            made = rng.integers(0, 2 if dtype.kind == "b" else max(high, 1), threads)
            columns.append(np.maximum(made, int(positive)).astype(np.float64))
        else:
            columns.append(rng.random(threads))
    rows = np.stack(columns, axis=1) if columns else np.zeros((threads, 0))
    if count is not None and count > threads:
        rows = np.resize(rows, (count, rows.shape[1]))
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


def check_names(given: Mapping[str, object], parameters: Sequence[CheckParameter], where: Location) -> None:
    """Raise InputError for an argument of a name that no parameter has."""
    names = [name for parameter in parameters for name in (parameter.members or (parameter.name,))]
    for name in given:
        if name not in names:
            expected = list_choices(names) if names else "no arguments"
            raise InputError(f"no parameter '{name}'", where=where, expected=expected, nearest=nearest(name, names))
