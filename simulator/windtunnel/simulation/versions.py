"""The versions and the source digest that a result was made with."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

from windtunnel.core.version import __version__
from windtunnel_models.catalogue import HERE as MODELS


@cache
def made_with() -> dict[str, str]:
    """Return ``versions`` and a digest of Windtunnel's own files, which also change between releases.

    Two machines with equal values give the same results.
    """
    digest = hashlib.sha256()
    for package in (Path(__file__).parents[1], MODELS):
        for path in sorted(package.rglob("*")):
            if "__pycache__" in path.parts or not path.is_file():
                continue
            digest.update(f"\0{path.relative_to(package).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return {**versions(), "windtunnel's files": digest.hexdigest()[:16]}


def versions() -> dict[str, str]:
    """Return the versions that a result was made with."""
    return {
        "windtunnel": __version__,
        "python": platform.python_version(),
        "numba": metadata.version("numba"),
        "numpy": np.__version__,
        "simpy": metadata.version("simpy"),
    }
