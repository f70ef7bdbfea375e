"""``python -m windtunnel.engine.compiled WHAT ...``: compile in the background what a run found missing.

The arguments are those of ``kernels.compile_now``. The process has a low priority, and leaves out what another one is
compiling.
"""

from __future__ import annotations

import contextlib
import os
import sys

from windtunnel.engine.compiled.kernels import compile_now

_NICENESS = 15

if __name__ == "__main__":
    with contextlib.suppress(AttributeError, OSError):  # a system without priorities
        os.nice(_NICENESS)
    for what in sys.argv[1:]:
        compile_now(what, unless_compiling=True)
