"""OpenCL C: work-items, barriers, atomics, vectors, conversions and copies of work-groups."""

from __future__ import annotations

from typing import Any

from windtunnel.csource.intrinsics import Intrinsics


class OpenCL(Intrinsics):
    """Translates what OpenCL C has beside C."""

    def asm(self, node: Any) -> None:
        """Translate a statement of assembly."""
        self.refuse(node, "assembly (asm)", "functions of the language")
