"""The compiled loop of events, in one variant for each set of features, and compiled policies."""

from __future__ import annotations

import importlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

from windtunnel.core.policy import Candidate, JobKey
from windtunnel.engine.compiled.machine_code import Call, Native, ObjectCode, Place, machine_code
from windtunnel.engine.compiled.support import is_foreign
from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.engine.prepare.waits import has_waits
from windtunnel.engine.transitions.features import VARIANTS
from windtunnel.engine.transitions.tables import World
from windtunnel.scenario.faults import OperationFault

_LOG = logging.getLogger(__name__)
TAKES = "from 20 s to a few minutes"
"""How long compiling a variant takes."""


def variant_of(prepared: PreparedRun) -> str:
    """Return the variant of the kernel that a run needs."""
    if needs_everything(prepared):
        return "all"
    if prepared.policy.batch.kind != "continuous":
        return "fleet"
    if prepared.interrupts or prepared.budget_w is not None:
        return "all"
    if prepared.disaggregated:
        return "all" if prepared.tiers else "disaggregated"
    if prepared.policy.batch.prefix_cache is None:
        return "serving"
    return "tiers" if prepared.tiers else "prefixes"


def needs_everything(prepared: PreparedRun) -> bool:
    """Return whether a run needs rare features, from autoscaling to faults of operations."""
    if prepared.scaled or prepared.real or prepared.users or prepared.progresses or prepared.ganging:
        return True
    if prepared.flows is not None or prepared.outranks:
        return True
    if has_waits(prepared) or prepared.reconfigures or prepared.drafted_tokens or prepared.adapting:
        return True
    if any(isinstance(fault, OperationFault) for fault in prepared.scenario.faults):
        return True
    if any(kind_of_station(prepared, c) == "stream" for c in prepared.classes):
        return True
    batching = prepared.policy.batch.kind == "request"
    return batching and any(prepared.batches(cls, work) is None for cls, work in prepared.compiled)


_TRANSITIONS = Path(__file__).parents[1] / "transitions"
_IMPORT = re.compile(r"^from (windtunnel[\w.]*) import", re.MULTILINE)
_COMPILING = tuple(Path(__file__).parent / name for name in ("compile.py", "jit.py"))
_POLICY = Path(inspect.getfile(Candidate))


@cache
def kernel_sources() -> tuple[Path, ...]:
    """Return the files on which the machine code depends, sorted.

    These are the module of the loop of events, the transitions that it imports, the modules outside of that package
    from which any of these takes a constant or a function, and the modules that compile them.
    """
    package = Path(__file__).parents[2]
    sources = set(_COMPILING)
    remaining = [_TRANSITIONS / "events.py"]
    while remaining:
        source = remaining.pop()
        if source in sources:
            continue
        sources.add(source)
        if source.parent == _TRANSITIONS:
            modules = _IMPORT.findall(source.read_text(encoding="utf-8"))
            remaining += [package.joinpath(*module.split(".")[1:]).with_suffix(".py") for module in modules]
    return tuple(sorted(sources))


@cache
def place_of(variant: str) -> Place:
    """Return where the machine code of a variant is kept."""
    return Place(f"advance_{variant}", kernel_sources())


class Loop:
    """The loop of events of one run, which continues with every call.

    ``functions`` are the score of the route, the key of the order, and the score of the route to decoding devices.
    """

    def __init__(self, call: Call, *functions: Native) -> None:
        self._call, self._functions = call, list(_words_of_functions(*functions))
        self._tables: Sequence[np.ndarray | None] = ()
        self._words: list[list[int]] = []

    def __call__(self, world: World) -> int:
        """Continue with the tables of ``world``, and return what the loop asks for."""
        # Only a few tables are others than in the call before.
        known = zip_longest(world, self._tables, self._words)
        self._words = [
            words if words is not None and table is before else _words_of_table(table) for table, before, words in known
        ]
        self._tables = world
        return self._call([*chain.from_iterable(self._words), *self._functions])


@cache
def kernel(variant: str) -> Call:
    """Return the loop of events with the features of a variant, loaded, or else compiled now."""
    return Call(machine_code(place_of(variant), partial(_compiled_loop, variant)))


def _compiled_loop(variant: str) -> ObjectCode:
    from windtunnel.engine.compiled.compile import compiled_loop

    _LOG.info("Compiling the simulation engine for runs of this kind. This happens once, and takes %s.", TAKES)
    return compiled_loop(variant, VARIANTS[variant])


def _words_of_table(table: np.ndarray | None) -> list[int]:
    """Return a table as arguments of Numba's calling convention.

    An array is given by its owner and its object (here none), the number of its elements, their size, its address, and
    its shape and strides. A table that is None is one word.
    """
    if table is None:
        return [0]
    plain = table.view(np.ndarray)  # whose attributes are read faster than those of records
    return [0, 0, plain.size, plain.itemsize, plain.ctypes.data, *plain.shape, *plain.strides]


def _words_of_functions(*functions: Native) -> Iterator[int]:
    """Yield functions as arguments: the addresses of a C function and an object (here none), and of the function."""
    for native in functions:
        yield from (0, 0, native.address)


@cache
def compiled_score(score: Callable[..., tuple[float, float]] | None) -> Native:
    """Return a route's score for the kernel; raises Numba's error for a function that does not compile."""
    return _compiled("score", score or _NONE["score"])


@cache
def compiled_key(key: Callable[..., float] | None) -> Native:
    """Return an order's key for the kernel; raises Numba's error for a function that does not compile."""
    return _compiled("key", key or _NONE["key"])


def _compiled(use: str, of_policy: Callable[..., object]) -> Native:
    """Return a compiled function of a policy. The machine code of those that are part of Windtunnel is kept."""
    if not _is_kept(of_policy):
        from windtunnel.engine.compiled.compile import compiled_here

        return compiled_here(use, of_policy)
    return machine_code(_place_of_function(use, of_policy), partial(_compiled_function, use, of_policy))


def _is_kept(of_policy: Callable[..., object]) -> bool:
    # The numbers of a closure, such as the weights of a route, differ from run to run.
    return not is_foreign(of_policy) and of_policy.__closure__ is None


def missing_code(prepared: PreparedRun) -> dict[str, Place]:
    """Return what has to be compiled before a run: arguments of ``compile_now``, and where each will be stored."""
    policy, variant = prepared.policy, variant_of(prepared)
    needed = {variant: place_of(variant)}
    for use, of_policy in (("score", policy.route.score), ("key", policy.order.key), ("score", prepared.decode_score)):
        if of_policy is None or _is_kept(of_policy):
            needed[argument_of(use, of_policy)] = _place_of_function(use, of_policy or _NONE[use])
    return {what: place for what, place in needed.items() if not place.is_stored()}


def argument_of(use: str, of_policy: Callable[..., object] | None) -> str:
    """Return the argument of ``compile_now`` for a function of a policy: a "score" or a "key"."""
    known = of_policy or _NONE[use]
    return f"{use}={known.__module__}:{known.__qualname__}"


def compile_now(what: str, *, unless_compiling: bool = False) -> None:
    """Compile a variant, or a function of a policy given as ``USE=MODULE:NAME``, unless that has been done.

    ``unless_compiling``: nothing is done if another process compiles it now.
    """
    use, of_function, path = what.partition("=")
    if not of_function:
        if not (unless_compiling and place_of(what).is_locked()):
            kernel(what)
        return
    module, _, name = path.partition(":")
    of_policy = getattr(importlib.import_module(module), name)
    if not (unless_compiling and _place_of_function(use, of_policy).is_locked()):
        _compiled(use, of_policy)


@cache
def _place_of_function(use: str, of_policy: Callable[..., object]) -> Place:
    name = f"{use}_{of_policy.__module__.rpartition('.')[2]}_{of_policy.__qualname__}"
    return Place(name, (*_COMPILING, _POLICY, Path(of_policy.__code__.co_filename)))


def _compiled_function(use: str, of_policy: Callable[..., object]) -> ObjectCode:
    from windtunnel.engine.compiled.compile import compiled_function

    return compiled_function(use, of_policy)


def _no_score(device: Candidate) -> tuple[float, float]:
    return 0.0, 0.0


def _no_key(job: JobKey) -> float:
    return 0.0


_NONE: dict[str, Callable[..., object]] = {"score": _no_score, "key": _no_key}
"""What the loop is given where a policy has no such function."""
