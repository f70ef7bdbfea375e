"""`windtunnel emulate`: a program written for another interface, on an emulated device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def emulate(script: Path | str, arguments: Sequence[str], device: str, *, strict: bool, is_module: bool = False) -> int:
    """Run a program, a file or a module, and return its exit status; 1 if a finding was reported."""
    from windtunnel.emulate.script import run_script

    options: dict[str, Any] = {"strict": True} if strict else {}
    return run_script(script, arguments, device, options, is_module=is_module)
