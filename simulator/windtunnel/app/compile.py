"""`windtunnel compile`: the machine code of the compiled engine, for runs of every kind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from windtunnel.core.errors import InputError, Location, WindtunnelError
from windtunnel.core.worker_processes import end_at_once, without_interrupts
from windtunnel.engine.compiled.kernels import argument_of, compile_now
from windtunnel.engine.compiled.machine_code import writable_folder
from windtunnel.engine.transitions.features import VARIANTS
from windtunnel.simulation.fleet import policy_functions


def compile_engine(progress: Callable[[int, int], None]) -> str:
    """Compile all variants of the engine and the functions of all policies; return the folder of the machine code.

    What is stored already is left alone. ``progress`` is called with (compiled, in all).

    Raises:
        InputError: No folder for machine code can be written to.
        WindtunnelError: A process that compiles was killed.
    """
    folder = writable_folder()
    if folder is None:
        raise InputError(
            "no folder for machine code can be written to",
            where=Location(field="compile"),
            expected="an installation, a home directory or NUMBA_CACHE_DIR that can be written to",
        )
    functions = {argument_of("score", None), argument_of("key", None)}
    functions |= {argument_of(use, function) for use, function in policy_functions()}
    # The variant with all features takes longest, and begins first.
    wanted = [*reversed(VARIANTS), *sorted(functions)]
    progress(0, len(wanted))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        try:
            with without_interrupts():  # handing out the work is what starts processes
                compiled = [pool.submit(compile_now, what) for what in wanted]
            for done, one in enumerate(as_completed(compiled), 1):
                one.result()
                progress(done, len(wanted))
        except BrokenProcessPool:
            raise WindtunnelError(
                "a process that compiles the engine was killed, perhaps because memory ran out (the largest function "
                "needs 2.5 GB); what was compiled before is stored, and `windtunnel compile` goes on from there"
            ) from None
        except BaseException:
            end_at_once(pool)
            raise
    return str(folder)
