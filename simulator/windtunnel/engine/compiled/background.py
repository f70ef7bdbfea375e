"""Compiles the engine in another process, of low priority, which goes on when this one ends."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from windtunnel.engine.compiled.kernels import TAKES
from windtunnel.engine.compiled.machine_code import writable_folder

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).parents[3]
_processes: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}


def started(missing: tuple[str, ...]) -> bool:
    """Start compiling what is missing, once; return whether it will be stored, unless the process fails.

    A process finds that another one compiles the same, and then ends at once.
    """
    known = _processes.get(missing)
    if known is not None:
        return known.poll() in (None, 0)
    if writable_folder() is None:
        _LOG.warning(
            "No folder for machine code can be written to, so this run waits until the simulation engine is compiled "
            "(%s), and so will every other run. Name a folder in the environment variable NUMBA_CACHE_DIR.",
            TAKES,
        )
        return False
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        _processes[missing] = subprocess.Popen(  # noqa: S603  this interpreter and module
            [sys.executable, "-P", "-m", "windtunnel.engine.compiled", *missing],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    _LOG.info(
        "Compiling the simulation engine for runs of this kind in the background. This happens once, and takes %s; "
        "until then, runs take longer. 'windtunnel compile' compiles it for runs of every kind.",
        TAKES,
    )
    return True
