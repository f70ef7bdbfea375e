"""Arrays as a kernel's threads see them, many threads at a time: bounds, elements, and atomic operations.

An index is what `lanes` calls a value: the same for all, a ramp, or one for each thread. Every access says where it
stands in the source, so that what is wrong with it can be said there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypedDict

import numpy as np

from windtunnel.core.errors import BarrierDivergence, OutOfBounds, UninitializedRead
from windtunnel.emulator.lockstep.forms import Affine, Form, Pattern, plain
from windtunnel.emulator.lockstep.lanes import Chunk, Lanes, Ramp, Value
from windtunnel.emulator.races.watch import Shadow
from windtunnel.language import ir
from windtunnel.runtime.interface import Dims

Position = int | slice | np.ndarray | Pattern
"""Elements of the flat memory: one for all threads, a stretch in their order, one each, or a formula of those."""


class Found(TypedDict):
    """Where a finding is, as it takes it."""

    file: str
    lines: tuple[int, ...]


@dataclass
class Launch:
    """What findings say about where they were made."""

    program: ir.Program
    grid: Dims
    block: Dims
    device: str
    warp: int = 32
    together: bool = True
    """Whether threads of a warp that are elsewhere when others meet are let be."""
    checked: bool = True
    """Whether reads of variables that nothing was assigned to are looked for."""

    def thread(self, identity: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(block, thread) of a thread by its number in the launch."""
        per_block = self.block[0] * self.block[1] * self.block[2]
        return _unflatten(identity // per_block, self.grid), _unflatten(identity % per_block, self.block)

    def block_of(self, identity: int) -> int:
        """A thread's block, by its number."""
        return identity // (self.block[0] * self.block[1] * self.block[2])

    def who(self, identity: int) -> str:
        """A thread, in words."""
        block, thread = self.thread(identity)
        return f"thread {_short(thread, self.block)} of block {_short(block, self.grid)}"

    def at(self, line: int) -> str:
        """A line of the source, in words."""
        text = self.program.text_of(line)
        file, number = self.program.place_of(line)
        other = "" if file == self.program.file else f" of {PurePath(file).name}"
        return f"line {number}{other}" + (f" ({text})" if text else "")

    def found_at(self, *lines: int) -> Found:
        """Where a finding is: the file of the first of these lines, and those that are of it."""
        places = [self.program.place_of(line) for line in lines]
        file = places[0][0] if places else self.program.file
        return {"file": file, "lines": tuple(sorted({line for one, line in places if one == file}))}

    def where(self) -> str:
        """What a message begins with."""
        return f"{self.program.name} on {self.device}"

    def unset(self, identity: int, line: int, name: str) -> UninitializedRead:
        """A thread's variable is read before anything was assigned to it."""
        return UninitializedRead(
            f"{self.where()}: '{name}' is read at {self.at(line)} by {self.who(identity)}, which has not assigned "
            "anything to it",
            file=self.program.file,
            lines=(line,),
            threads=(self.thread(identity),),
        )


def _unflatten(number: int, sides: Dims) -> tuple[int, int, int]:
    return number % sides[0], number // sides[0] % sides[1], number // (sides[0] * sides[1])


def _short(index: tuple[int, int, int], sides: Dims) -> str:
    used = max((axis + 1 for axis in range(3) if sides[axis] > 1), default=1)
    return str(index[0]) if used == 1 else str(index[:used])


class Memory:
    """An array of a kernel: ``flat`` has its elements, for every block or thread that has its own one after another."""

    def __init__(self, launch: Launch, name: str, shape: Sequence[int], flat: np.ndarray) -> None:
        self.launch, self.name, self.shape, self.flat = launch, name, tuple(shape), flat
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.missing: np.ndarray | None = None
        """Which elements nobody has written; None where there are none such."""
        self.left = 0
        """Threads that have to write before it is worth looking whether any element is missing still."""
        self.copies = True
        """Whether what is read must not change when it is written later."""
        self.shadow: Shadow | None = None
        """Who has touched what; None where no two threads can meet."""

    def side(self, number: int) -> np.int32:
        """The length of a side."""
        return np.int32(self.shape[number])

    # What a kernel does with it.

    def load(self, lanes: Lanes, line: int, *indices: Value) -> Value:
        """Elements."""
        position = self.position(lanes, line, indices)
        if self.missing is not None:
            self._check_written(lanes, line, position)
        if self.shadow is not None:
            self.shadow.read(self, lanes, line, position)
        if isinstance(position, Pattern):
            return position.take(self.flat, copied=self.copies)
        found = self.flat[position]
        return found.copy() if self.copies and isinstance(position, slice) else found

    def store(self, lanes: Lanes, line: int, value: Value, *indices: Value) -> None:
        """Set elements; of several threads that set one, the last."""
        position, value = self.position(lanes, line, indices), plain(value)
        if self.shadow is not None:
            self.shadow.write(self, lanes, line, position, value, atomic=False)
        before = self.flat[_each(position, lanes.size)].copy() if lanes.chunk.exact else None
        if isinstance(position, Pattern):
            position.put(self.flat, value)
        elif isinstance(position, int) and isinstance(value, np.ndarray) and value.ndim:
            self.flat[position] = value[-1]
        else:
            self.flat[position] = value
        same = before is not None and np.array_equal(before, self.flat[_each(position, lanes.size)])
        lanes.chunk.changes += not same
        if self.missing is not None:
            self._written(lanes, position)

    def atomic(self, lanes: Lanes, line: int, op: str, values: Sequence[Value], used: bool, *indices: Value) -> Value:
        """Change elements one thread after another; what was there before (None where it is not ``used``)."""
        position = self.position(lanes, line, indices)
        if self.missing is not None and op != "exch":
            self._check_written(lanes, line, position)
        if self.shadow is not None:
            self.shadow.write(self, lanes, line, position, None, atomic=True)
        if self.missing is not None:
            self._written(lanes, position)
        places = _each(position, lanes.size)
        before = self.flat[places].copy()
        operands = [np.broadcast_to(np.asarray(value), lanes.size) for value in values]
        found = atomically(self.flat, places, op, operands, used)
        lanes.chunk.changes += not np.array_equal(before, self.flat[places])
        return found

    # What its kinds differ in.

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """Where in the flat memory; OutOfBounds."""
        raise NotImplementedError

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """An element's index, as the source has it, from its place in the flat memory."""
        raise NotImplementedError

    # Bounds.

    def linear(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Value:
        """The element's number within the array, checked side by side."""
        found: Value = None
        for index, side in zip(indices, self.shape, strict=True):
            if not within(index, side):
                raise self._beyond(lanes, line, indices)
            found = index if found is None else _joined(found, side, index)
        return found

    def _beyond(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> OutOfBounds:
        each = [np.broadcast_to(np.asarray(index).astype(np.int64), lanes.size) for index in indices]
        bad = np.zeros(lanes.size, bool)
        for index, side in zip(each, self.shape, strict=True):
            bad |= (index < 0) | (index >= side)
        first = int(np.flatnonzero(bad)[0])
        where = tuple(int(index[first]) for index in each)
        identity = int(lanes.identities[first])
        shown = where[0] if len(where) == 1 else where
        sides = " x ".join(map(str, self.shape))
        launch = self.launch
        others = int(bad.sum()) - 1
        return OutOfBounds(
            f"{launch.where()}: index {shown} of '{self.name}', which has {sides} elements, at {launch.at(line)}: "
            f"{launch.who(identity)}" + (f", and {others:,} other threads" if others else ""),
            **launch.found_at(line),
            array=self.name,
            index=shown,
            threads=(launch.thread(identity),),
        )

    def _check_written(self, lanes: Lanes, line: int, position: Position) -> None:
        assert self.missing is not None  # noqa: S101  the caller has seen it
        if isinstance(position, Pattern):
            if not position.any(self.missing):
                return
            position = position.each
        absent = self.missing[position]
        if not absent.any():
            return
        first = int(np.flatnonzero(np.atleast_1d(absent))[0])
        place = int(_each(position, lanes.size)[first])
        identity = int(lanes.identities[first])
        index, launch = self.index_of(place), self.launch
        raise UninitializedRead(
            f"{launch.where()}: element {index} of '{self.name}' is read at {launch.at(line)} by "
            f"{launch.who(identity)}, and nobody has written it",
            **launch.found_at(line),
            array=self.name,
            index=index,
            threads=(launch.thread(identity),),
        )

    def _written(self, lanes: Lanes, position: Position) -> None:
        assert self.missing is not None  # noqa: S101  the caller has seen it
        if isinstance(position, Pattern):
            position.put(self.missing, False)
        else:
            self.missing[position] = False
        self.left -= lanes.size
        if self.left <= 0:
            # Each thread writes one element at most: so few of them cannot have been all that were missing.
            self.left = int(np.count_nonzero(self.missing))
            if not self.left:
                self.missing = None

    def _unflattened(self, number: int) -> int | tuple[int, ...]:
        found = []
        for side in reversed(self.shape):
            found.append(number % side)
            number //= side
        return found[0] if len(found) == 1 else tuple(reversed(found))


class Global(Memory):
    """An array in the device's memory."""

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """See ``Memory``."""
        found = self.linear(lanes, line, indices)
        if isinstance(found, Ramp):
            return slice(found.start, found.start + found.size) if found.step == 1 else np.asarray(found)
        if isinstance(found, Affine):
            return Pattern(found)
        return found if isinstance(found, np.ndarray) and found.ndim else int(found)

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """See ``Memory``."""
        return self._unflattened(position)


class Shared(Memory):
    """An array of each block's own, unset when the block begins."""

    def __init__(self, launch: Launch, declared: ir.Declare, chunk: Chunk, *, checked: bool) -> None:
        size = int(np.prod(declared.shape))
        super().__init__(launch, declared.name, declared.shape, np.zeros(chunk.blocks * size, declared.element.dtype))
        if checked:
            self.missing = np.ones(self.flat.size, bool)
            self.shadow = Shadow(self.flat.size, chunk.threads, chunk.warp, own=size)

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """See ``Memory``."""
        found = self.linear(lanes, line, indices)
        if not isinstance(found, Form) and not np.ndim(found):
            found = Affine(lanes, (0, 0, 0), (0, 0, 0), int(found))
        if isinstance(found, Affine) and not any(found.jumps):
            return Pattern(found, self.size)
        return np.asarray(lanes.places * self.size + _wide(found))

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """See ``Memory``."""
        return self._unflattened(position % self.size)


class Local(Memory):
    """An array of each thread's own, unset when the thread begins."""

    def __init__(self, launch: Launch, declared: ir.Declare, chunk: Chunk, *, checked: bool) -> None:
        size = int(np.prod(declared.shape))
        super().__init__(launch, declared.name, declared.shape, np.zeros(chunk.size * size, declared.element.dtype))
        self.threads = chunk.size
        if checked:
            self.missing = np.ones(self.flat.size, bool)

    def position(self, lanes: Lanes, line: int, indices: Sequence[Value]) -> Position:
        """See ``Memory``. Threads lie side by side, so that what all of them read at once is a stretch."""
        found = self.linear(lanes, line, indices)
        if isinstance(found, Form) or (isinstance(found, np.ndarray) and found.ndim):
            return np.asarray(_wide(found) * self.threads + lanes.numbers)
        first = int(found) * self.threads
        if lanes.selection is None:
            return slice(first, first + self.threads)
        if isinstance(lanes.selection, slice):
            return slice(first + lanes.selection.start, first + lanes.selection.stop)
        return first + lanes.selection

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """See ``Memory``."""
        return self._unflattened(position // self.threads)


def _all_of(lanes: Lanes) -> Any:
    return slice(None) if lanes.selection is None else lanes.selection


class Waits(Exception):
    """Side by side threads cannot go on: a loop waits for what others have not done yet."""


def meet(lanes: Lanes, mask: Value) -> None:
    """Threads of a warp meet; Waits where one that the mask names is elsewhere, and has not returned.

    A device lets them wait for it until it comes or ends. Which it does is seen thread by thread.
    """
    chunk = lanes.chunk
    if lanes.selection is None or chunk.launch.together:
        return
    here = np.zeros(chunk.size, bool)
    here[lanes.numbers] = True
    there = ~here & ~chunk.gone
    if not there.any():
        return
    linear = chunk.layout.linear
    lane = linear % chunk.warp
    warp = chunk.layout.place * (-(-chunk.threads // chunk.warp)) + linear // chunk.warp
    named = np.zeros(int(warp[-1]) + 1, np.uint64)
    given = np.full(lanes.size, 0xFFFFFFFF if mask is None else np.asarray(mask), np.uint64)
    np.bitwise_or.at(named, warp[lanes.numbers], given)
    present = np.zeros(len(named), bool)
    present[warp[lanes.numbers]] = True
    # A mask has 32 bits: lanes beyond are named with the others.
    absent = there & present[warp] & ((lane >= 32) | ((named[warp] >> np.minimum(lane, 31).astype(np.uint64)) & 1 == 1))
    if absent.any():
        raise Waits


def barrier(lanes: Lanes, line: int, scope: str) -> None:
    """All threads of a block meet; BarrierDivergence where some of one come and others do not.

    Side by side, a warp's threads have met already, and what one has written all can see.
    """
    chunk = lanes.chunk
    if scope == "warp":
        met = chunk.warp_epochs.copy()
        met[_all_of(lanes)] += 1
        chunk.warp_epochs = met
        return
    if scope.startswith("fence"):
        return
    if lanes.selection is None:
        chunk.epochs = chunk.epochs + 1
        chunk.interval += 1
        return
    came = np.bincount(lanes.places, minlength=chunk.blocks)
    if not np.all(((came == 0) & (scope == "block")) | (came == chunk.threads)):
        raise _diverged(lanes, line, came)
    chunk.epochs = chunk.epochs + (came > 0).astype(np.int32)


def assigned(lanes: Lanes, line: int, name: str, given: Value) -> None:
    """Each thread has assigned something to a variable that it reads; ``given``: whether it has."""
    launch = lanes.chunk.launch
    absent = np.flatnonzero(~np.atleast_1d(np.asarray(plain(given), np.bool_)))
    if len(absent) and launch.checked:
        raise launch.unset(int(lanes.identities[absent[0]]), line, name)


def _diverged(lanes: Lanes, line: int, came: np.ndarray) -> BarrierDivergence:
    chunk, launch = lanes.chunk, lanes.chunk.launch
    partly = np.flatnonzero((came != 0) & (came != chunk.threads))
    # At the grid's barrier whole blocks may be missing.
    block = int(partly[0] if len(partly) else np.flatnonzero(came == 0)[0])
    first = (chunk.first + block) * chunk.threads
    here = lanes.identities[lanes.places == block] if len(partly) else lanes.identities
    missing = int(np.setdiff1d(np.arange(first, first + chunk.threads), here)[0])
    return BarrierDivergence(
        f"{launch.where()}: {int(came[block]):,} of {chunk.threads:,} threads of a block reach the barrier at "
        f"{launch.at(line)}: {launch.who(int(here[0]))} does, {launch.who(missing)} does not",
        **launch.found_at(line),
        threads=(launch.thread(int(here[0])), launch.thread(missing)),
    )


def within(index: Value, side: int) -> bool:
    """Whether all of an index lie in 0 to ``side`` - 1."""
    if isinstance(index, Ramp):
        last = index.start + (index.size - 1) * index.step
        return not index.size or (min(index.start, last) >= 0 and max(index.start, last) < side)
    if isinstance(index, Affine):
        low, high = index.bounds()
        if low >= 0 and high < side:
            return True
        index = index.wide()
    if not isinstance(index, np.ndarray) or not index.ndim:
        return bool(0 <= index < side)
    if not len(index):
        return True
    # Seen as unsigned, what is negative is far beyond: one pass in place of two.
    kind = index.dtype
    if kind.kind == "i":
        index = index.view(f"u{kind.itemsize}")
    return bool(index.max() < side)


def _wide(index: Value) -> Value:
    """An index in 64 bits, written out."""
    if isinstance(index, Affine):
        return index.wide()
    index = plain(index)
    return index.astype(np.int64) if isinstance(index, np.ndarray) else np.int64(index)


def _joined(outer: Value, side: int, inner: Value) -> Value:
    """``outer * side + inner``, where nothing overflows; a formula of formulas."""
    if isinstance(outer, Affine) and isinstance(inner, Affine) and outer.lanes is inner.lanes:
        return outer.times(side).plus(inner)
    if isinstance(outer, Affine) and not isinstance(inner, (np.ndarray, Form)):
        return outer.times(side).moved(int(inner))
    if isinstance(inner, Affine) and not isinstance(outer, (np.ndarray, Form)):
        return inner.moved(int(outer) * side)
    return _wide(outer) * side + _wide(inner)


def _each(position: Position, size: int) -> np.ndarray:
    """A place for each thread."""
    if isinstance(position, Pattern):
        return position.each
    if isinstance(position, slice):
        return np.arange(position.start, position.stop)
    return np.full(size, position) if isinstance(position, int) else position


_AT: Mapping[str, Any] = {
    "add": np.add, "sub": np.subtract, "max": np.fmax, "min": np.fmin, "and_": np.bitwise_and, "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_ONE: Mapping[str, Callable[..., Any]] = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "max": np.fmax,
    "min": np.fmin,
    "and_": lambda old, x: old & x,
    "or_": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda _old, x: x,
    "cas": lambda old, expected, x: x if old == expected else old,
    # CUDA's: up to x and then 0 again; down to 0 and then x again.
    "inc": lambda old, x: old.dtype.type(0) if old >= x else old + old.dtype.type(1),
    "dec": lambda old, x: x if old == 0 or old > x else old - old.dtype.type(1),
}


def change_one(op: str, old: Any, values: Sequence[Any]) -> Any:
    """What an atomic operation leaves where ``old`` was."""
    return _ONE[op](old, *values)


def atomically(flat: np.ndarray, places: np.ndarray, op: str, values: Sequence[np.ndarray], used: bool) -> Any:
    """Do ``op`` to elements of ``flat`` in the order of the threads; what each found there, if that is ``used``."""
    if not used and op in _AT:
        _AT[op].at(flat, places, values[0])
        return None
    if len(places) > 1 and op in ("add", "sub") and flat.dtype.kind in "iu":
        return _summed(flat, places, values[0] if op == "add" else (0 - values[0]).astype(flat.dtype))
    change = _ONE[op]
    found = np.empty(len(places), flat.dtype)
    if len(np.unique(places)) == len(places) and op in _AT:
        found[...] = flat[places]
        flat[places] = _AT[op](found, values[0])
        return found
    for number, (place, *operands) in enumerate(zip(places.tolist(), *values, strict=True)):
        old = flat[place]
        found[number] = old
        flat[place] = change(old, *operands)
    return found


def _summed(flat: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Integers added in order: what each thread finds is what was there and what those before it have added."""
    order = np.argsort(places, kind="stable")
    sorted_places, added = places[order], values[order].astype(flat.dtype)
    before = np.cumsum(added, dtype=flat.dtype) - added
    first = np.flatnonzero(np.r_[True, sorted_places[1:] != sorted_places[:-1]])
    group = np.cumsum(np.r_[True, sorted_places[1:] != sorted_places[:-1]]) - 1
    found = np.empty(len(places), flat.dtype)
    found[order] = flat[sorted_places] + (before - before[first][group])
    np.add.at(flat, places, values)
    return found
