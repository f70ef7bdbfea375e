"""Random kernels: the detectors report a data race if and only if a search through all pairs of accesses finds one.

`make test` checks the first 100 kernels, `make study` the first 2,000 (`python -m tests.differential.race_fuzz 0 2000`).

Each kernel is executed twice in the same order: once without race detection, which records what the threads do, and
once with it. The oracle knows nothing of the detectors. For each access it keeps the set of all earlier steps that are
ordered before it, by what orders threads according to docs/kernels.md, and then compares all pairs.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.differential.race_kernels import RandomKernel, random_kernel

from windtunnel.core.errors import DataRace, Finding
from windtunnel.emulator.common.symbolic import each_position
from windtunnel.emulator.device.executable import CompiledKernel, Executable
from windtunnel.emulator.lockstep import compiler
from windtunnel.emulator.lockstep.arrays import GlobalArray, LocalArray, LockstepArray
from windtunnel.emulator.races import records, shadow_memory
from windtunnel.emulator.threads import clocks
from windtunnel.emulator.threads.arrays import ThreadArray
from windtunnel.emulator.threads.launch import ThreadKernel
from windtunnel.emulator.threads.state import Thread
from windtunnel.language.ir import RAISED

ORDERS: tuple[int | None, ...] = (None, 0, 1, 2)
"""The fastest way of execution, and three seeds of execution thread by thread."""


# The oracle.


class Access(NamedTuple):
    """An access of one thread."""

    thread: int
    kind: str
    """``read``, ``write``, ``change`` (atomic), ``store`` (atomic), ``see`` (an atomic load, or a compare-and-swap that
    changes nothing), or ``fence``."""
    cell: Any
    line: int
    value: Any
    before: int
    """The accesses that are ordered before it, as bits."""
    fence: int = 0
    """Of a change or a store: the last fence of its thread before it, as a bit; 0 for none."""


def conflict(a: Access, b: Access, *, strict: bool) -> bool:
    """Return whether two accesses of different threads to one element conflict."""
    kinds = {a.kind, b.kind}
    if kinds == {"write"}:
        return strict or not (a.value == b.value or (a.value != a.value and b.value != b.value))  # noqa: PLR0124
    if "write" in kinds:
        return True
    return "read" in kinds and bool(kinds & {"change", "store"})


@dataclass
class Oracle:
    """All accesses of a run in their order, and which of them are ordered."""

    threads: int
    """Threads of a block."""
    accesses: list[Access] = field(default_factory=list)
    known: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """For each thread, the accesses that are ordered before what it does next."""
    fenced: defaultdict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    """For each thread, the accesses that its next atomic operation releases: to ``all``, or to its ``block``."""
    last_fence: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """For each thread, its last fence, as a bit."""
    released: defaultdict[Any, list[tuple[int, int | None]]] = field(default_factory=lambda: defaultdict(list))
    """For each element, what atomic operations have released: the accesses, and the block that alone acquires them."""

    def access(self, thread: int, kind: str, cell: Any, line: int, value: Any = None) -> None:
        """Add an access."""
        fence = self.last_fence[thread] if kind in ("change", "store") else 0
        self.accesses.append(Access(thread, kind, cell, line % RAISED, value, self.known[thread], fence))
        self.known[thread] |= 1 << (len(self.accesses) - 1)
        if kind in ("change", "store", "see"):
            block = thread // self.threads
            if kind == "store":  # what is read now is what this thread releases, and nothing that others have released
                self.released[cell].clear()
            for released, only in self.released[cell]:
                if only is None or only == block:
                    self.known[thread] |= released
            if kind != "see":
                self.released[cell] += [(self.fenced[thread, "all"], None), (self.fenced[thread, "block"], block)]

    def fence(self, thread: int, *, block: bool) -> None:
        """Add a fence."""
        self.access(thread, "fence", None, 0)
        self.last_fence[thread] = 1 << (len(self.accesses) - 1)
        self.fenced[thread, "block"] = self.known[thread]
        if not block:
            self.fenced[thread, "all"] = self.known[thread]

    def meet(self, threads: Iterable[int]) -> None:
        """Let threads wait for each other."""
        threads = list(threads)
        known = self._union(self.known[thread] for thread in threads)
        for scope in ("all", "block"):
            fenced = self._union(self.fenced[thread, scope] for thread in threads)
            for thread in threads:
                self.fenced[thread, scope] = fenced
        for thread in threads:
            self.known[thread] = known

    @staticmethod
    def _union(sets: Iterable[int]) -> int:
        union = 0
        for one in sets:
            union |= one
        return union

    def races(self, benign: set[int], *, strict: bool) -> list[tuple[Access, Access]]:
        """Return all racing pairs."""
        by_cell: dict[Any, list[tuple[int, Access]]] = defaultdict(list)
        for number, access in enumerate(self.accesses):
            if access.line not in benign:
                by_cell[access.cell].append((number, access))
        return [
            (early, late)
            for accesses in by_cell.values()
            for place, (_, late) in enumerate(accesses)
            for number, early in accesses[:place]
            if early.thread != late.thread
            and not late.before >> number & 1
            and conflict(early, late, strict=strict)
            and not self._observed(early, late, accesses[:place], number)
        ]

    @staticmethod
    def _observed(early: Access, late: Access, accesses: Sequence[tuple[int, Access]], number: int) -> bool:
        """Return whether a plain access follows a change that its thread has seen by an atomic operation.

        The thread of the change has fenced before it, and that of the access knows of the fence.
        """
        return (
            early.kind in ("change", "store")
            and late.kind in ("read", "write")
            and bool(late.before & early.fence)
            and any(
                number < place and one.thread == late.thread and one.kind in ("change", "store", "see")
                for place, one in accesses
            )
        )


# What is recorded of a run.


class _Recording:
    """The oracle of the run in progress; None if nothing is recorded."""

    now: Oracle | None = None
    lockstep: Oracle | None = None
    """What threads did in lockstep, if they were then executed one by one from the beginning."""


def _lockstep_accesses(
    array: LockstepArray, lanes: Any, line: int, indices: Sequence[Any]
) -> Iterator[tuple[int, Any]]:
    """Yield thread and element of each lane."""
    position = array.position(lanes, line, indices)
    places = each_position(position, lanes.size)
    address = array.flat.__array_interface__["data"][0]
    for thread, place in zip(lanes.identities.tolist(), places.tolist(), strict=True):
        yield (
            thread,
            (address if isinstance(array, GlobalArray) else (array.name, thread // lanes.chunk.threads), place),
        )


def _each(value: Any, lanes: Any, dtype: Any) -> list[Any]:
    return np.broadcast_to(np.asarray(value).astype(dtype), lanes.size).tolist()


def _meet_in_lockstep(oracle: Oracle, lanes: Any, scope: str) -> None:
    chunk = lanes.chunk
    groups = defaultdict(list)
    for thread in lanes.identities.tolist():
        within = thread % chunk.threads
        groups[thread // chunk.threads, within // chunk.warp if scope == "warp" else 0].append(thread)
    for group in groups.values():
        oracle.meet(group)


@contextmanager
def listening() -> Iterator[None]:
    """Record what threads do, in both ways of execution, as far as a run has an oracle."""
    with pytest.MonkeyPatch.context() as patch:
        _listen_in_lockstep(patch)
        _listen_to_threads(patch)
        yield


def _listen_in_lockstep(patch: pytest.MonkeyPatch) -> None:
    load, store, atomic = LockstepArray.load, LockstepArray.store, LockstepArray.atomic

    def is_heard(array: LockstepArray) -> bool:
        return _Recording.now is not None and not isinstance(array, LocalArray)

    def heard_load(self: Any, lanes: Any, line: int, *indices: Any) -> Any:
        if is_heard(self):
            for thread, cell in _lockstep_accesses(self, lanes, line, indices):
                _Recording.now.access(thread, "read", cell, line)  # type: ignore[union-attr]
        return load(self, lanes, line, *indices)

    def heard_store(self: Any, lanes: Any, line: int, value: Any, *indices: Any) -> None:
        if is_heard(self):
            values = _each(value, lanes, self.flat.dtype)
            for (thread, cell), stored in zip(_lockstep_accesses(self, lanes, line, indices), values, strict=True):
                _Recording.now.access(thread, "write", cell, line, stored)  # type: ignore[union-attr]
        store(self, lanes, line, value, *indices)

    def heard_atomic(self: Any, lanes: Any, line: int, op: str, values: Any, used: bool, *indices: Any) -> Any:
        if not is_heard(self):
            return atomic(self, lanes, line, op, values, used, *indices)
        found = atomic(self, lanes, line, op, values, True, *indices)
        kinds = [{"load": "see", "store": "store"}.get(op, "change")] * lanes.size
        if op == "cas":
            kinds = [
                "see" if a != b else "change"
                for a, b in zip(
                    _each(found, lanes, self.flat.dtype), _each(values[0], lanes, self.flat.dtype), strict=True
                )
            ]
        for (thread, cell), kind in zip(_lockstep_accesses(self, lanes, line, indices), kinds, strict=True):
            _Recording.now.access(thread, kind, cell, line)  # type: ignore[union-attr]
        return found if used else None

    barrier = compiler.HELPERS["barrier"]

    def heard_barrier(lanes: Any, line: int, scope: str) -> None:
        barrier(lanes, line, scope)  # type: ignore[operator]
        if _Recording.now is not None:
            _meet_in_lockstep(_Recording.now, lanes, scope)

    patch.setattr(LockstepArray, "load", heard_load)
    patch.setattr(LockstepArray, "store", heard_store)
    patch.setattr(LockstepArray, "atomic", heard_atomic)
    patch.setitem(compiler.HELPERS, "barrier", heard_barrier)  # type: ignore[arg-type]


def _listen_to_threads(patch: pytest.MonkeyPatch) -> None:
    def heard(name: str, kind_of: Callable[..., tuple[str, Any]]) -> None:
        plain = getattr(ThreadArray, name)

        def step(self: Any, thread: Any, line: int, *rest: Any) -> Any:
            if _Recording.now is None or self.memory is None:
                return plain(self, thread, line, *rest)
            indices = rest[{"load": 0, "store": 1, "atomic": 2}[name] :]
            at = self._position(thread, line, indices)
            kind, value = kind_of(self, at, *rest)
            _Recording.now.access(thread.id, kind, (id(self.memory), at), line, value)
            return plain(self, thread, line, *rest)

        patch.setattr(ThreadArray, name, step)

    def change(array: Any, at: int, op: str, values: Any, *_: Any) -> tuple[str, Any]:
        if op == "cas":
            return ("see" if array.flat[at] != values[0] else "change"), None
        return {"load": "see", "store": "store"}.get(op, "change"), None

    heard("load", lambda array, at, *_: ("read", None))
    heard("store", lambda array, at, value, *_: ("write", array.flat.dtype.type(value).item()))
    heard("atomic", change)
    fence, barrier, synchronise, run = Thread.fence, clocks.barrier, clocks.synchronise, ThreadKernel.run

    def heard_fence(self: Any, block: bool) -> Any:
        if _Recording.now is not None:
            _Recording.now.fence(self.id, block=block)
        return fence(self, block)

    def heard_barrier(block: int, interval: int, known: Any) -> None:
        known = list(known)
        if _Recording.now is not None:
            _Recording.now.meet(clock.thread for clock in known)
        barrier(block, interval, known)

    def heard_synchronise(known: Any) -> None:
        known = list(known)
        if _Recording.now is not None:
            _Recording.now.meet(clock.thread for clock in known)
        synchronise(known)

    def heard_run(self: Any, *arguments: Any, **options: Any) -> Any:
        if _Recording.now is not None and _Recording.now.accesses:
            _Recording.lockstep, _Recording.now = _Recording.now, Oracle(_Recording.now.threads)
        return run(self, *arguments, **options)

    patch.setattr(Thread, "fence", heard_fence)
    patch.setattr(clocks, "barrier", heard_barrier)
    patch.setattr(clocks, "synchronise", heard_synchronise)
    patch.setattr(ThreadKernel, "run", heard_run)


# Checks.


def arguments_of(kernel: RandomKernel) -> list[np.ndarray]:
    """Return the arrays of a launch. All elements that a kernel may access are within them."""
    length = 2 * kernel.size + 48
    a, c = np.zeros(length, np.int32), np.zeros(length, np.int32)
    return [
        a,
        np.zeros((4, length), np.int32),
        a if kernel.aliased else c,
        np.zeros(length, np.float32),
        np.zeros(8, np.int32),
        np.zeros(kernel.size, np.int32),
    ]


def function_of(kernel: RandomKernel, name: str) -> Callable[..., Any]:
    """Return the kernel as a function whose source is in the line cache."""
    file = f"<{name}>"
    linecache.cache[file] = (len(kernel.text), None, kernel.text.splitlines(keepends=True), file)
    module: dict[str, Any] = {"__name__": name}
    exec(compile(kernel.text, file, "exec"), module)  # noqa: S102  the text was generated here
    return module["kernel"]  # type: ignore[no-any-return]


def launch(kernel: RandomKernel, compiled: CompiledKernel, arrays: Sequence[np.ndarray], seed: int | None) -> Any:
    """Launch a kernel and return its finding; None if it has none."""
    try:
        Executable.launch(
            compiled,
            (kernel.blocks, 1, 1),
            (kernel.width, kernel.threads // kernel.width, 1),
            arrays,
            device="l4",
            warp=kernel.warp,
            strict=kernel.strict,
            resident=kernel.blocks,
            seed=seed,
        )
    except Finding as finding:
        return finding
    return None


def recorded(kernel: RandomKernel, compiled: CompiledKernel, seed: int | None) -> tuple[list[Oracle], Any, list[Any]]:
    """Run without race detection. Returns what threads did, the finding, and the arrays."""
    _Recording.now, _Recording.lockstep = Oracle(kernel.threads), None
    arrays = arguments_of(kernel)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shadow_memory.ShadowMemory, "_access", lambda *_: None)
            patch.setattr(ThreadArray, "_check", lambda *_: None)
            finding = launch(kernel, compiled, arrays, seed)
        return [one for one in (_Recording.lockstep, _Recording.now) if one is not None], finding, arrays
    finally:
        _Recording.now = _Recording.lockstep = None


def check(seed: int) -> str:
    """Check one kernel in all orders; return what it is. Raises AssertionError with its text."""
    kernel = random_kernel(seed)
    verdicts = {}
    with listening(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_PYTHON_WORK", 0 if seed % 2 else 2**60)
        compiled = Executable(function_of(kernel, f"race kernel {seed}")).specialised(arguments_of(kernel))
        for order in ORDERS:
            verdicts[order] = _check_order(kernel, compiled, order, f"seed {seed}, order {order}:\n{kernel.text}")
    if not kernel.ordered_by_chance:
        assert len(set(verdicts.values())) == 1, f"seed {seed}: {verdicts}\n{kernel.text}"
    return verdicts[None]


def _check_order(kernel: RandomKernel, compiled: CompiledKernel, order: int | None, text: str) -> str:
    benign = {n for n, line in enumerate(kernel.text.splitlines(), 1) if "windtunnel: benign" in line}
    oracles, other, expected = recorded(kernel, compiled, order)
    races = [pair for oracle in oracles for pair in oracle.races(benign, strict=kernel.strict)]
    arrays = arguments_of(kernel)
    found = launch(kernel, compiled, arrays, order)
    if races:
        assert isinstance(found, DataRace), f"missed {races[0]}, found {found!r}: {text}"
        described = {(frozenset((a.line, b.line)), frozenset((a.thread, b.thread))) for a, b in races}
        threads = frozenset(
            block[0] * kernel.threads + thread[1] * kernel.width + thread[0] for block, thread in found.threads
        )
        assert (frozenset(found.lines), threads) in described, f"{found} is not a race: {text}"
        return "race"
    assert type(found) is type(other), f"false alarm {found!r}, expected {other!r}: {text}"
    if found is not None:
        return type(found).__name__
    assert all(np.array_equal(a, b) for a, b in zip(arrays, expected, strict=True)), text
    return "clean"


def main(first: int, end: int) -> int:
    """Check the kernels of a range of seeds; return the number of failures."""
    kinds: Counter[str] = Counter()
    failures = 0
    for seed in range(first, end):
        try:
            kinds[check(seed)] += 1
        except AssertionError as error:
            failures += 1
            print(f"seed {seed}: {error}")
    print(f"{end - first:,} kernels, {failures} failures; {dict(kinds)}")
    return failures


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:3])) > 0)
