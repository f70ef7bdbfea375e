"""The text of a Python function that executes a kernel: its lines, names that are new, and constants by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar


class Writer:
    """Lines at a depth; what is no text is a constant, which the text names."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.number = 0

    def emit(self, line: str, at: int | None = None) -> None:
        """A line of the function."""
        self.lines.append("    " * (self.depth if at is None else at) + line)

    def _held(self, value: str) -> str:
        name = self._fresh("t")
        self.emit(f"{name} = {value}")
        return name

    def _fresh(self, stem: str) -> str:
        self.number += 1
        return f"_{self.number}_{stem}"

    def _constant(self, value: Any) -> str:
        name = f"c_{len(self.constants)}"
        self.constants[name] = value
        return name

    def _dtype(self, kind: Scalar) -> str:
        name = f"d_{kind.name}"
        self.constants[name] = kind.dtype
        return name

    def _literal(self, e: ir.Literal) -> str:
        assert e.type is not None  # noqa: S101  inference has been there
        if e.type == BOOL:
            return str(bool(e.value))
        if e.type.kind in ("int", "uint"):
            # The bits of a number: 0xFFFFFFFF as a signed one is -1.
            value = int(e.value) & (2**e.type.bits - 1)
            return self._constant(np.array(value, f"u{e.type.bits // 8}").astype(e.type.dtype)[()])
        return self._constant(e.type.dtype.type(e.value))
