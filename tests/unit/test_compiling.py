"""Compiling the engine: of several processes that need the same machine code, one compiles it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMPILE = """
from numba import typeof, types
from windtunnel.engine.compiled import kernels
from windtunnel.engine.compiled.jit import Variant
from windtunnel.engine.transitions.events import advance
signature = types.int64(typeof(kernels._empty()), types.FunctionType(kernels.SCORE), types.FunctionType(kernels.KEY))
compiled = Variant("of_this_test", frozenset()).entry(advance, signature)
print(sum(compiled.stats.cache_hits.values()), sum(compiled.stats.cache_misses.values()))
"""


def test_one_of_two_processes_compiles_and_the_other_loads(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(process.communicate()[0].strip() for process in processes)
    assert answers == ["0 1", "1 0"]
