"""Emission of the Python function that executes a kernel: its lines, temporary names, and named constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar

FUNCTIONS = {"min": "m.minimum", "max": "m.maximum", "**": "m.power"}
"""Operators that are emitted as calls of `mathematics`."""


class Writer:
    """Collects the lines of a function. Values that are not text become constants, which the text names."""

    def __init__(self) -> None:
        self.constants: dict[str, object] = {}
        self.lines: list[str] = []
        self.depth = 1
        self._count = 0

    def emit(self, line: str, at: int | None = None) -> None:
        """Append a line at the current depth, or at a given one."""
        self.lines.append("    " * (self.depth if at is None else at) + line)

    def _emit_temporary(self, value: str) -> str:
        name = self._new_name("t")
        self.emit(f"{name} = {value}")
        return name

    def _new_name(self, stem: str) -> str:
        self._count += 1
        return f"_{self._count}_{stem}"

    def _constant(self, value: Any) -> str:
        name = f"c_{len(self.constants)}"
        self.constants[name] = value
        return name

    def _dtype(self, kind: Scalar) -> str:
        name = f"d_{kind.name}"
        self.constants[name] = kind.dtype
        return name

    def _literal(self, e: ir.Literal) -> str:
        assert e.type is not None  # noqa: S101  type inference has set it
        if e.type == BOOL:
            return str(bool(e.value))
        if e.type.kind in ("int", "uint"):
            # The literal states the bits: 0xFFFFFFFF as a signed number is -1.
            value = int(e.value) & (2**e.type.bits - 1)
            return self._constant(np.array(value, f"u{e.type.bits // 8}").astype(e.type.dtype)[()])
        return self._constant(e.type.dtype.type(e.value))

    def _conversion(self, e: ir.Convert, operand: str) -> str:
        assert e.operand.type is not None  # noqa: S101  type inference has set it
        if e.to == BOOL:
            return f"({operand} != {self._constant(e.operand.type.dtype.type(0))})"
        return f"convert({operand}, {self._dtype(e.to)})"


def unary(op: str, operand: str, negation: str) -> str:
    """Return the text of a unary operation; ``negation`` is the text of ``not``."""
    return {
        "not": negation, "-": f"m.negative({operand})", "+": operand, "~": f"(~{operand})",
        "abs": f"m.absolute({operand})",
    }[op]  # fmt: skip
