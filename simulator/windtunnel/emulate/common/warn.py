"""Warnings of emulated interfaces, which name the line of the program."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parents[2])


def warn(warning: Warning) -> None:
    """Issue a warning for the innermost line of the program that called Windtunnel."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)
