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
score, key = types.FunctionType(kernels.SCORE), types.FunctionType(kernels.KEY)
signature = types.int64(typeof(kernels._empty()), score, key, score)
compiled = Variant("of_this_test", frozenset()).entry(advance, signature)
print(sum(compiled.stats.cache_hits.values()), sum(compiled.stats.cache_misses.values()))
"""


def test_one_of_two_processes_compiles_and_the_other_loads(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(process.communicate()[0].strip() for process in processes)
    assert answers == ["0 1", "1 0"]


SCORES = """
from windtunnel.policies import orders, routes
from windtunnel.engine.compiled import kernels
compiled = [kernels.compiled_score(routes.least_loaded), kernels.compiled_score(None)]
compiled += [kernels.compiled_key(orders.highest_priority), kernels.compiled_key(None)]
print([sum(one.stats.cache_hits.values()) for one in compiled])
"""


def test_the_scores_and_keys_of_policies_are_compiled_by_one_process_and_loaded_by_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for hits in (0, 1):
        command = [sys.executable, "-c", SCORES]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert answer.strip() == str([hits] * 4)
