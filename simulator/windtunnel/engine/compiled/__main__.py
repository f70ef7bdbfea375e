"""``python -m windtunnel.engine.compiled``: compile the engine now, so that no run has to wait for it.

Arguments are what to compile (``kernels.compile_now``); without them it is every variant, each in its own process.
With ``--background`` the process has a low priority, and leaves out what another one is compiling.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from windtunnel.engine.compiled.kernels import VARIANTS, compile_now

_NICENESS = 15


def main(arguments: Sequence[str]) -> None:
    """Compile what the arguments of the command line say."""
    if arguments[:1] == ["--background"]:
        with contextlib.suppress(AttributeError, OSError):  # a system without priorities
            os.nice(_NICENESS)
        for what in arguments[1:]:
            compile_now(what, unless_compiling=True)
        return
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_now, arguments or list(reversed(VARIANTS))))


if __name__ == "__main__":
    main(sys.argv[1:])
