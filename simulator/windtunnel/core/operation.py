"""What an operation is: its columns, its work, rows of it, and the registry of all operations.

An operation is one class in `windtunnel.core.ops` or `windtunnel.core.serving_ops`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.registry import Registry
from windtunnel.core.units import is_dimensionless, parse_quantity

FloatArray = npt.NDArray[np.float64]
Numbers = Mapping[str, FloatArray]
Choices = Mapping[str, str]

DTYPES = ("float32", "tf32", "float16", "bfloat16", "fp8", "fp8_block", "nvfp4", "int8")
BYTES_PER_ELEMENT: Mapping[str, float] = {
    "float64": 8.0,
    "float32": 4.0,
    "tf32": 4.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4.0 / 128**2,  # one float32 scale for each 128x128 block of weights
    "nvfp4": 0.5 + 1.0 / 16,  # one fp8 scale for every 16 elements
    "int8": 1.0,
    "mxfp4": 0.5 + 1.0 / 32,  # one 8-bit exponent for every 32 elements
    "int4": 0.5 + 2.0 / 128,  # one 16-bit scale for every 128 elements
}
"""Storage of one element in bytes, including scales."""
WEIGHT_ONLY = ("mxfp4", "int4")
"""Formats of weights alone: kernels unpack them and multiply 16-bit numbers."""


def arithmetic(dtype: str) -> str:
    """Return the format in which products with weights of the format ``dtype`` are computed."""
    return "bfloat16" if dtype in WEIGHT_ONLY else dtype


CONTEXT_DOC = "the context of the measurement, which a comparison of two times requires"


@dataclass(frozen=True)
class Column:
    """One column of an operation.

    ``kind`` is ``count`` (a whole number), ``real``, ``choice``, or ``text`` (any). Counts and reals are plain numbers
    in ``unit`` (in tables), or text with a unit (in scenarios and on the command line).
    """

    name: str
    kind: Literal["count", "real", "choice", "text"]
    unit: str = "1"
    default: float | str | None = None
    choices: tuple[str, ...] = ()
    minimum: float = 1.0
    maximum: float = 2.0**53
    doc: str = ""

    def parse(self, value: object) -> float | str:
        """Return the value of this column that a scenario, the command line or a cell of a table states.

        Raises:
            InputError: The value is not valid; it states what was expected and the nearest right name.
        """
        if self.kind == "text":
            return self._text(value)
        if self.kind == "choice":
            text = str(value)
            if text not in self.choices:
                raise InputError(
                    f"'{text}' is not a valid {self.name}",
                    expected=list_choices(self.choices),
                    nearest=nearest(text, self.choices),
                )
            return text
        number = self._number(value)
        if not np.isfinite(number):
            raise InputError(f"{self.name} is {value}", expected=f"a finite number from {self.minimum:g}{self._suffix}")
        if number < self.minimum:
            raise InputError(f"{self.name} is {value}", expected=f"at least {self.minimum:g}{self._suffix}")
        if number > self.maximum:
            raise InputError(f"{self.name} is {value}", expected=f"at most {self.maximum:g}{self._suffix}")
        if self.kind == "count":
            # In floating point, 0.268 GB is not exactly a whole number of bytes.
            if abs(number - round(number)) > 1e-9 * number:
                raise InputError(f"{self.name} is {value}", expected="a whole number")
            return float(round(number))
        return number

    @property
    def is_number(self) -> bool:
        """Return whether values are numbers; the others are words, which rows of one group have in common."""
        return self.kind in ("count", "real")

    def _text(self, value: object) -> str:
        text = str(value).strip()
        if not text and self.default is None:
            raise InputError(f"{self.name} is empty", expected=self.doc)
        return text

    @property
    def _suffix(self) -> str:
        return "" if is_dimensionless(self.unit) else f" {self.unit}"

    def _number(self, value: object) -> float:
        if isinstance(value, bool):
            raise InputError(f"{self.name} is {value}", expected="a number")
        if isinstance(value, (int, float, np.integer, np.floating)):
            try:
                return float(value)
            except OverflowError:
                raise InputError(f"{self.name} is too large", expected=f"at most {self.maximum:g}") from None
        text = str(value)
        try:
            return float(text)
        except ValueError:
            if is_dimensionless(self.unit):
                raise InputError(f"{self.name} is '{text}'", expected="a number") from None
            return parse_quantity(text, self.unit)


def count(name: str, default: int | None = None, *, unit: str = "1", doc: str = "") -> Column:
    """Return a whole-number column whose values are at least 1."""
    return Column(name, "count", unit, default, doc=doc)


def real(name: str, default: float | None = None, *, unit: str, minimum: float = 0.0, doc: str = "") -> Column:
    """Return a real-number column in ``unit``."""
    return Column(name, "real", unit, default, minimum=minimum, doc=doc)


def choice(name: str, choices: Sequence[str], default: str | None = None, *, doc: str = "") -> Column:
    """Return a column whose values are ``choices``."""
    return Column(name, "choice", default=default, choices=tuple(choices), doc=doc)


CONTEXT = (
    choice(
        "dispatch",
        ("device", "graph", "eager"),
        "device",
        doc="device time only; replayed in a graph; launched one by one",
    ),
    choice(
        "clock", ("burst", "sustained"), "burst", doc="a short run at the boost clock; a long loop at the power limit"
    ),
    choice("cache", ("cold", "warm"), "cold", doc="operands in device memory; operands in the last-level cache"),
)
"""Further columns of every operation that runs on hardware."""


class Operation:
    """Base of all operations. Subclasses define ``name``, ``columns`` and device-independent work."""

    name: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    sums: ClassVar[tuple[str, ...]] = ()
    """Columns that are summed over the requests of a batch. Without any, requests are executed one after another."""
    hardware: ClassVar[bool] = True
    """False for an operation with a stated time (``service``), which has no context."""
    launched: ClassVar[bool] = True
    """False for an operation without a launch beside its own time: ``service``, ``copy`` and ``launch`` itself."""
    follows: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {}
    """Columns of choices whose default depends on another choice, stated before: its name, and the default by word."""

    @classmethod
    def all_columns(cls) -> tuple[Column, ...]:
        """Return the operation's own columns, then those of its context."""
        return cls.columns + (CONTEXT if cls.hardware else ())

    @classmethod
    def column(cls, name: str) -> Column:
        """Return the column ``name``; raises InputError with the nearest right name."""
        columns = {column.name: column for column in cls.all_columns()}
        try:
            return columns[name]
        except KeyError:
            raise InputError(
                f"'{name}' is not a column of {cls.name}",
                expected=list_choices(columns, 20),
                nearest=nearest(name, columns),
            ) from None

    @classmethod
    def complete(cls, values: Mapping[str, object]) -> dict[str, float | str]:
        """Return the checked ``values`` with defaults for missing columns.

        Raises:
            InputError: A column is unknown or missing, or its value is not valid.
        """
        parsed = {name: cls.column(name).parse(value) for name, value in values.items()}
        for column in cls.all_columns():
            if column.name not in parsed:
                if column.default is None:
                    raise InputError(
                        f"{cls.name} needs '{column.name}'",
                        expected=", ".join(_column_text(column) for column in cls.columns),
                    )
                parsed[column.name] = cls.default_of(column, parsed)
        return parsed

    @classmethod
    def default_of(cls, column: Column, stated: Mapping[str, float | str]) -> float | str:
        """Return the default of a column that has one, beside the values of the columns before it."""
        assert column.default is not None  # noqa: S101  by contract
        other, words = cls.follows.get(column.name, ("", {}))
        return words.get(str(stated.get(other)), str(column.default)) if other else column.default

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the number of arithmetic operations, by the usual count; 0 for operations that are not counted so."""
        return np.zeros(())

    @classmethod
    def operand_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the bytes of all operands, each read or written once; 0 for data that only passes through."""
        return np.zeros(())

    @classmethod
    def footprint_bytes(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return the device memory (bytes) that the operands take together."""
        return cls.operand_bytes(choices, n)


def _column_text(column: Column) -> str:
    if column.default is not None:
        return f"{column.name}={column.default}"
    return f"{column.name} ({'|'.join(column.choices)})" if column.choices else column.name


OPERATIONS: Registry[type[Operation]] = Registry("operation")


def operation(cls: type[Operation]) -> type[Operation]:
    """Register an operation under its name (class decorator)."""
    return OPERATIONS.add(cls.name, cls)


@dataclass(frozen=True)
class Rows:
    """Instances of one operation with the same choices: the argument of a cost function.

    ``choices``: the value of each choice column, including the context. ``numbers``: a float64 array for each other
    column, all of one shape.
    """

    op: type[Operation]
    choices: Choices
    numbers: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the common shape of the number columns."""
        return np.broadcast_shapes(*(np.shape(values) for values in self.numbers.values()))

    def footprint_bytes(self) -> FloatArray:
        """Return the device memory (bytes) of each instance."""
        return np.broadcast_to(self.op.footprint_bytes(self.choices, self.numbers), self.shape)


def one_row(op: type[Operation], values: Mapping[str, object]) -> Rows:
    """Return a single instance of ``op`` from plain values, checked and completed with defaults."""
    parsed = op.complete(values)
    return Rows(
        op,
        {key: value for key, value in parsed.items() if isinstance(value, str)},
        {key: np.array([value]) for key, value in parsed.items() if not isinstance(value, str)},
    )
