"""Parameters of elementwise and reduction kernels: their texts, types, and where elements lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.operations import unsupported
from windtunnel.emulate.cupy.refusals import not_available

_C_TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float16": "float16", "float32": "float", "float64": "double", "complex64": "complex<float>",
    "complex128": "complex<double>",
}  # fmt: skip
_ALIASES = {"int": "int64", "uint": "uint64", "float": "float64", "complex": "complex128", "long": "int64"}


def c_type(dtype: np.dtype[Any]) -> str:
    """Return the type in C of elements of an array."""
    if dtype.name not in _C_TYPES:
        raise not_available(f"an element of {dtype} in a kernel")
    return _C_TYPES[dtype.name]


@dataclass(frozen=True)
class Parameter:
    """A parameter: ``kind`` is a type of NumPy, or a letter that stands for one."""

    name: str
    kind: str
    raw: bool
    constant: bool

    @property
    def is_letter(self) -> bool:
        """Whether its type is that of the arguments."""
        return len(self.kind) == 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type, if it states one."""
        return np.dtype(_ALIASES.get(self.kind, self.kind))


def parse(text: str, *, constant: bool) -> tuple[Parameter, ...]:
    """Return the parameters of a list such as ``"T x, raw float32 y"``."""
    made = []
    if re.search(r"\w\s*\(", text):
        raise not_available(f"the parameters '{text}' with dimensions of their own")
    for part in (one.strip() for one in text.split(",")):
        if not part:
            continue
        words = part.split()
        raw = "raw" in words[:-2]
        non_constant = "_non_const" in words[:-2]
        unknown = set(words[:-2]) - {"raw", "const", "_non_const"}
        if len(words) < 2 or unknown:
            raise SyntaxError(f"Syntax error: {part}")
        name, kind = words[-1], words[-2]
        if name in ("i", "n") or name.startswith("_"):
            raise ValueError(f"{'Can not use' if name in 'in' else 'Invalid'} parameter name: {name}")
        parameter = Parameter(name, kind, raw, constant and not non_constant)
        if not parameter.is_letter:
            try:
                _ = parameter.dtype
            except TypeError:
                raise TypeError(f"data type '{kind}' not understood") from None
        made.append(parameter)
    return tuple(made)


def checked(args: Sequence[Any]) -> list[Any]:
    """Return arguments as arrays of the device and numbers. Raises TypeError for anything else."""
    made: list[Any] = []
    for given in args:
        foreign = not isinstance(given, (ndarray, np.ndarray)) and hasattr(given, "__cuda_array_interface__")
        one = ndarray.from_interface(given) if foreign else given
        if not isinstance(one, ndarray) and not (np.isscalar(one) and not isinstance(one, (str, bytes))):
            raise unsupported(one)
        made.append(one)
    return made


def types_of(
    inputs: Sequence[Parameter], outputs: Sequence[Parameter], args: Sequence[Any], out: Sequence[Any]
) -> tuple[dict[str, np.dtype[Any]], list[np.dtype[Any]]]:
    """Return (the types that letters stand for, the type of each parameter). Raises TypeError if arguments differ."""
    letters: dict[str, np.dtype[Any]] = {}
    pairs = [*zip(outputs, out, strict=False), *zip(inputs, args, strict=True)]
    for parameter, value in pairs:
        if not isinstance(value, ndarray):
            continue
        wanted = letters.setdefault(parameter.kind, value.dtype) if parameter.is_letter else parameter.dtype
        if value.dtype != wanted:
            raise TypeError(
                f"Type is mismatched. {parameter.name} {value.dtype.type} {wanted.type}"
                + (f" {parameter.kind}" if parameter.is_letter else "")
            )
    for parameter, value in pairs:
        if parameter.is_letter and parameter.kind not in letters and not isinstance(value, ndarray):
            letters[parameter.kind] = np.asarray(value).dtype
    unknown = sorted({one.kind for one in outputs if one.is_letter} - set(letters))
    if unknown:
        raise ValueError(f"the type '{unknown[0]}' is not that of an argument")
    return letters, [letters[one.kind] if one.is_letter else one.dtype for one in (*inputs, *outputs)]


def number(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number in a type, with the low bits that fit."""
    if dtype.kind in "iu" and isinstance(value, (int, np.integer)):
        low = int(value) & (2 ** (8 * dtype.itemsize) - 1)
        return np.array(low, f"u{dtype.itemsize}").astype(dtype)[()]
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)[()]


@dataclass
class Place:
    """Where the elements of an array lie: a sum of terms of an index, as text in C, and the numbers in it."""

    text: str
    numbers: list[tuple[str, int]]


def merged(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (size, stride) of fewer dimensions that have the same elements in the same order."""
    made: list[tuple[int, int]] = []
    for side, stride in dims:
        if side == 1:
            continue
        if made and made[-1][1] == side * stride:
            made[-1] = (made[-1][0] * side, stride)
        else:
            made.append((side, stride))
    return made


def place(name: str, index: str, dims: Sequence[tuple[int, int]]) -> Place:
    """Return where the element of a number lies, in elements. ``dims``: (size, stride in elements), outermost first."""
    few = merged(dims)
    terms, numbers, inner = [], [], 1
    for at, (side, stride) in reversed(list(enumerate(few))):
        step = index
        if inner != 1:
            numbers.append((f"_{name}_inner{at}", inner))
            step = f"({index} / _{name}_inner{at})"
        if at:
            numbers.append((f"_{name}_side{at}", side))
            step = f"({step} % _{name}_side{at})"
        if stride == 1:
            terms.append(step)
        elif stride:
            numbers.append((f"_{name}_stride{at}", stride))
            terms.append(f"{step} * _{name}_stride{at}")
        inner *= side
    return Place(" + ".join(terms) or "0", numbers)


def element_strides(array: ndarray) -> tuple[int, ...] | None:
    """Return the strides in elements; None if they are not whole ones."""
    size = array.dtype.itemsize
    if array.offset % size or any(stride % size for stride in array.strides):
        return None
    return tuple(stride // size for stride in array.strides)


_MEMBERS = re.compile(r"\b(\w+)\s*\.\s*(size|ndim|shape|strides)\s*(\(\s*\))?\s*(?:\[\s*(\d+)\s*\])?")


def with_members(text: str, arrays: dict[str, ndarray], used: dict[str, int]) -> str:
    """Return an expression with the members of raw arrays (``x.size()``, ``x.shape()[0]``) as numbers.

    ``used`` gets the names and values of the numbers.
    """

    def replaced(found: re.Match[str]) -> str:
        name, member, at = found[1], found[2], found[4]
        array = arrays.get(name)
        if name == "_ind" and member == "size":
            return "_n"
        if array is None or (member in ("shape", "strides") and at is None):
            return found[0]
        value = {
            "size": array.size,
            "ndim": array.ndim,
            "shape": array.shape[int(at or 0)] if array.ndim else 1,
            "strides": array.strides[int(at or 0)] if array.ndim else 0,
        }[member]
        key = f"_{name}_{member}{at or ''}"
        used[key] = int(value)
        return key

    return _MEMBERS.sub(replaced, text)
