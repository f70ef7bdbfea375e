"""Random kernels with and without data races, from fixed seeds, as text.

Half of them are sparse: in each stretch between two synchronisations a few threads make a few accesses, which tells
rules apart that differ in one case. The other half are written as users write kernels: all threads run the same
statements, with branches, loops and helper arrays, and most of these are free of races.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

CELLS = 3
"""Elements of the array that sparse kernels share."""


@dataclass(frozen=True)
class RandomKernel:
    """A kernel and how it is launched.

    Attributes:
        text: Its module.
        blocks: Blocks of the grid.
        threads: Threads of a block.
        width: Threads of a block along x; the others are along y.
        warp: Threads of a warp.
        strict: Whether equal writes are reported.
        aliased: Whether its arrays ``a`` and ``c`` are one buffer.
        ordered_by_chance: Whether its paths or values depend on the order of threads.
    """

    text: str
    blocks: int
    threads: int
    width: int
    warp: int
    strict: bool
    aliased: bool
    ordered_by_chance: bool

    @property
    def size(self) -> int:
        """Threads of the grid."""
        return self.blocks * self.threads


class Draw(random.Random):
    """Random choices."""

    def some(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability


def random_kernel(seed: int) -> RandomKernel:
    """Return the kernel of a seed."""
    draw = Draw(seed)
    return _Writer(draw).kernel()


class _Writer:
    """Writes one kernel."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.depth = 1
        self.blocks = draw.choice([1, 1, 2, 2, 2, 3])
        self.threads = draw.choice([2, 3, 4, 4, 6, 8, 8])
        self.warp = draw.choice([2, 4, 4, 8, 32])
        if draw.some(0.1):  # whole warps of 32, and a partial one
            self.threads, self.warp, self.blocks = 40, 32, draw.choice([1, 2])
        self.width = self.threads // 2 if self.threads % 2 == 0 and draw.some(0.25) else self.threads
        self.sparse = draw.some(0.5)
        self.fences = draw.some(0.3)
        self.kinds: list[str] = []
        self.loops: list[str] = []
        self.variables = 0
        self.uniform = True
        """Whether all threads of a block are at the statement that is being written."""
        self.warp_uniform = True
        self.by_chance = False
        self.may_synchronise = True
        self.wild = draw.choice([0.0, 0.0, 0.05, 0.2, 0.6])
        """The probability that an access of a dense kernel is to an element that other threads access too."""
        self.benign = draw.some(0.1)

    def kernel(self) -> RandomKernel:
        if self.sparse:
            self._sparse()
        else:
            self._dense()
        head = [
            "from windtunnel import atomic, blockIdx, f32, grid, i32, local, shared, shfl_sync, syncthreads, syncwarp",
            "from windtunnel import threadfence, threadfence_block, threadIdx",
            "",
            "def bump(x, i, by):",
            "    x[i] += by",
            "",
            "def kernel(a: i32[:], b: i32[:, :], c: i32[:], f: f32[:], flags: i32[:], out: i32[:]):",
            *self._identities(),
            "    acc = 0",
            "    s = shared.array(48, i32)",
            "    s[t] = t",
            f"    s[t + {self.threads}] = 7" if self.threads <= 8 else "    pass",
            "    syncthreads()",
        ]
        draw = self.draw
        return RandomKernel(
            "\n".join([*head, *self.lines, "    out[me] = acc", ""]),
            self.blocks,
            self.threads,
            self.width,
            self.warp,
            strict=draw.some(0.2),
            aliased=draw.some(0.1),
            ordered_by_chance=self.by_chance,
        )

    def _identities(self) -> list[str]:
        if self.width == self.threads:
            return ["    t = threadIdx.x", "    u = blockIdx.x", "    me = grid(1)"]
        return [
            f"    t = threadIdx.x + {self.width} * threadIdx.y",
            "    u = blockIdx.x",
            f"    me = u * {self.threads} + t",
        ]

    def emit(self, text: str) -> None:
        mark = "  # windtunnel: benign" if self.benign and self.draw.some(0.15) else ""
        self.lines.append("    " * self.depth + text + mark)

    # Sparse kernels.

    def _sparse(self) -> None:
        draw = self.draw
        if self.warp == 32 and self.threads <= 8 and draw.some(0.5):
            self.warp = 4
        array = draw.choice(["a", "a", "a", "s", "f"])
        threads = self.threads * (1 if array == "s" else self.blocks)
        cells = draw.choice([1, 1, 2, CELLS])
        values = draw.choice([["7"], ["7", "8"], ["7", "7", "8"], ["t", "7"]])
        # Few kinds of access, so that one pair of them does not hide the others.
        self.kinds = draw.sample(
            ["read", "write", "write", "add", "exch", "cas", "missed", "max", "rmw", "load", "store"],
            draw.randint(1, 3),
        )
        if draw.some(0.25):  # plain writes of two values, of which only some pairs are races
            cells, values, self.kinds = 1, ["7", "8"], ["write"]
            self.warp = draw.choice([2, 4]) if self.warp <= self.threads else self.warp
        for stretch in range(draw.randint(1, 6)):
            if stretch:
                self._meet()
            for _ in range(draw.choice([0, 1, 1, 2, 2, 3])):
                who = draw.randrange(threads)
                name = "t" if array == "s" else "me"
                condition = f"{name} == {who}"
                if draw.some(0.15):
                    condition = draw.choice([f"{name} < {who + 1}", f"{name} % 2 == {who % 2}", "t == 0", "u == 0"])
                self.emit(f"if {condition}:")
                self.depth += 1
                for _ in range(draw.choice([1, 1, 1, 2, 3])):
                    self._sparse_step(array, draw.randrange(cells), draw.choice(values))
                self.depth -= 1

    def _sparse_step(self, array: str, cell: int, value: str) -> None:
        draw = self.draw
        kind = draw.choice(self.kinds)
        if self.fences and draw.some(0.4):
            kind = draw.choice(["fence", "fence_block", "flag", "flag"])
        index = draw.choice([str(cell), str(cell), f"{cell} + t * 0", f"({cell} + t - t) % 40"])
        if array == "f" and kind in ("max", "cas", "missed", "rmw", "load"):
            kind = draw.choice(["exch", "add"])
        convert = (lambda text: f"f32({text})") if array == "f" else str
        match kind:
            case "read":
                self.emit(f"acc += i32({array}[{index}])")
            case "write":
                self.emit(f"{array}[{index}] = {convert(value)}")
            case "rmw":
                self.emit(f"{array}[{index}] += 1")
            case "load":
                self.emit(f"acc += atomic.load({array}, {index})")
                self.by_chance = True
            case "add" | "exch" | "max" | "store":
                self.emit(f"atomic.{kind}({array}, {index}, {convert('1')})")
                self.by_chance |= kind in ("exch", "store")
            case "cas":
                self.emit(f"atomic.cas({array}, {index}, {draw.choice(['0', '7', 't'])}, {draw.choice(['7', '8'])})")
                self.by_chance = True
            case "missed":
                self.emit(f"atomic.cas({array}, {index}, -99, 7)")
            case "fence":
                self.emit("threadfence()")
            case "fence_block":
                self.emit("threadfence_block()")
            case _:
                self._flag()

    def _flag(self) -> None:
        flag = self.draw.randrange(2)
        self.by_chance = True
        self.emit(
            self.draw.choice(
                [
                    f"atomic.exch(flags, {flag}, 1)",
                    f"atomic.add(flags, {flag}, 1)",
                    f"atomic.add(flags, {flag}, 0)",
                    f"atomic.cas(flags, {flag}, 0, 1)",
                    f"atomic.cas(flags, {flag}, 55, 1)",
                    f"acc += atomic.load(flags, {flag})",
                    f"atomic.store(flags, {flag}, 1)",
                    f"acc += flags[{flag}]",
                ]
            )
        )

    def _meet(self) -> None:
        draw = self.draw
        what = draw.choice(["syncthreads", "syncwarp", "syncwarp", "nothing", "some", "warp", "both"])
        if what in ("syncthreads", "syncwarp"):
            self.emit(f"{what}()")
        elif what == "some":  # the barrier of one block only
            self.emit(f"if u == {draw.randrange(self.blocks)}:")
            self.depth += 1
            self.emit("syncthreads()")
            self.depth -= 1
        elif what == "warp":  # the meeting of one warp only
            self.emit(f"if t // {self.warp} == {draw.randrange(-(-self.threads // self.warp))}:")
            self.depth += 1
            self.emit("syncwarp()")
            self.depth -= 1
        elif what == "both":
            self.emit("syncwarp()")
            self.emit("syncthreads()")

    # Kernels in which all threads run the same statements.

    def _dense(self) -> None:
        for _ in range(self.draw.randint(2, 7)):
            self._statement(0)
        if self.fences and self.draw.some(0.7):
            self._publication()
        if self.draw.some(0.1):  # threads that return before the rest goes on
            self.emit(f"if t == {self.draw.randrange(self.threads)}:")
            self.lines.append("    " * (self.depth + 1) + "return")
            self.may_synchronise = False
            self._statement(1)

    def _statement(self, depth: int) -> None:
        draw = self.draw
        kinds = ["access"] * 5 + ["barrier"] * 3 + ["warp"] * 2
        if depth < 3:
            kinds += ["if", "if", "loop", "swap", "guarded"]
        match draw.choice(kinds):
            case "access":
                self._access()
            case "barrier":
                self._barrier()
            case "warp":
                self._warp()
            case "if":
                self._if(depth)
            case "loop":
                self._loop(depth)
            case "swap":
                self._exchange()
            case _:
                self._guarded()

    def _barrier(self) -> None:
        if self.uniform and self.may_synchronise:
            self.emit("syncthreads()")
        else:
            self._access()

    def _warp(self) -> None:
        if self.warp_uniform and (self.uniform or self.may_synchronise):
            width = min(self.warp, 32)
            if self.may_synchronise and self.warp >= 4 and self.draw.some(0.2):
                least = min(self.threads % self.warp or width, width)  # the lanes of the smallest warp of a block
                self.emit(f"acc += shfl_sync(0xFFFFFFFF, acc, {self.draw.randrange(least)})")
            elif self.draw.some(0.1) and width >= 4 and self.threads >= 2:
                # A meeting of the first two lanes.
                self.emit("if t < 2:")
                self.lines.append("    " * (self.depth + 1) + "syncwarp(3)")
            else:
                self.emit("syncwarp()")
        else:
            self._access()

    def _condition(self) -> tuple[str, bool, bool]:
        """A condition; whether it is one for all threads of a block, and for all of a warp."""
        draw, threads = self.draw, self.threads
        match draw.randrange(9):
            case 0:
                return f"u == {draw.randrange(self.blocks)}", True, True
            case 1:
                return f"t // {self.warp} == {draw.randrange(2)}", False, True
            case 2:
                return f"t < {draw.randint(1, threads)}", False, False
            case 3:
                return f"t % 2 == {draw.randrange(2)}", False, False
            case 4:
                return f"me != {draw.randrange(threads)}", False, False
            case 5:
                return f"{self._load()} == {draw.choice(['0', '7', 't'])}", False, False
            case 6:
                self.by_chance = True
                return f"atomic.add(flags, {draw.randrange(2, 4)}, 1) % 2 == 0", False, False
            case 7:
                return f"t > 0 and a[{self._index('a')}] > -5", False, False
            case _:
                return f"t == {draw.randrange(threads)}", False, False

    def _if(self, depth: int) -> None:
        condition, uniform, warp_uniform = self._condition()
        saved = self.uniform, self.warp_uniform
        self.emit(f"if {condition}:")
        self.uniform, self.warp_uniform = saved[0] and uniform, saved[1] and warp_uniform
        self._body(depth)
        if self.draw.some(0.4):
            self.emit("else:")
            self._body(depth)
        self.uniform, self.warp_uniform = saved

    def _body(self, depth: int) -> None:
        self.depth += 1
        for _ in range(self.draw.randint(1, 3)):
            self._statement(depth + 1)
        self.depth -= 1

    def _loop(self, depth: int) -> None:
        draw = self.draw
        name = f"r{self.variables}"
        self.variables += 1
        own = draw.some(0.15)
        self.emit(f"for {name} in range({'t % 3' if own else draw.randint(1, 3)}):")
        saved = self.uniform, self.warp_uniform
        if own:
            self.uniform = self.warp_uniform = False
        self.loops.append(name)
        self._body(depth)
        self.loops.pop()
        self.uniform, self.warp_uniform = saved

    def _exchange(self) -> None:
        """A value written for another thread, met, and read."""
        draw, width = self.draw, self.threads
        meeting = draw.choice(["syncthreads()", "syncwarp()", "syncwarp()"])
        meeting = meeting if self.uniform and self.may_synchronise else "pass"
        array, base = draw.choice([("s", ""), ("a", f"u * {width} + ")])
        other = draw.choice(["t ^ 1", f"{width - 1} - t", f"(t + 1) % {width}", "t // 2 * 2"])
        if other == "t ^ 1" and width % 2:
            other = "t"
        self.emit(f"{array}[{base}t] = t + 1")
        self.emit(meeting)
        self.emit(f"acc += {array}[{base}({other})]")
        if meeting != "pass" and draw.some(0.7):
            self.emit(meeting)

    def _guarded(self) -> None:
        """One thread writes what all read after a barrier."""
        array = self.draw.choice(["a", "s", "c"])
        cell = "u" if array != "s" and not self.draw.some(0.2) else "0"
        one = self.draw.randrange(self.threads)
        if not (self.uniform and self.may_synchronise):
            self._access()
            return
        self.emit("syncthreads()")
        self.emit(f"if t == {one}:")
        self.lines.append("    " * (self.depth + 1) + f"{array}[{cell}] = 5")
        if not self.draw.some(0.15):
            self.emit("syncthreads()")
        self.emit(f"acc += {array}[{cell}]")
        if not self.draw.some(0.15):
            self.emit("syncthreads()")

    def _publication(self) -> None:
        """A thread writes, fences and sets a flag; another polls it or looks once."""
        draw = self.draw
        first, second = draw.sample(range(self.threads * self.blocks), 2)
        self.by_chance = True
        fence = draw.choice(["threadfence()", "threadfence()", "threadfence_block()", "pass"])
        cell = draw.randrange(self.threads)
        self.emit(f"if me == {first}:")
        self.depth += 1
        self.emit(f"c[{cell}] = 3")
        self.emit(fence)
        self.emit("atomic.exch(flags, 4, 1)")
        self.depth -= 1
        self.emit(f"if me == {second}:")
        self.depth += 1
        if draw.some(0.5):
            self.emit("while atomic.add(flags, 4, 0) == 0:")
            self.lines.append("    " * (self.depth + 1) + "pass")
            if draw.some(0.5):
                self.emit("threadfence()")
            self.emit(f"acc += c[{cell}]")
        else:
            self.emit("if atomic.add(flags, 4, 0) == 1:")
            self.lines.append("    " * (self.depth + 1) + f"acc += c[{cell}]")
        self.depth -= 1

    # Accesses of dense kernels.

    def _index(self, array: str) -> str:
        """An index: of the thread's own element, or of one that others have too."""
        draw, width = self.draw, self.threads
        own = "t" if array == "s" else draw.choice(["me", "me", f"u * {width} + t", f"{width} * u + t"])
        if not draw.some(self.wild):
            if draw.some(0.2):
                return f"{self.size - 1} - me" if array != "s" else f"{width - 1} - t"
            return own
        shared = [
            "0",
            "t",
            "u",
            f"{own} + 1",
            "t // 2",
            "t * 0 + 1",
            "(t * 3) % 5",
            "t % 2",
            "me % 3",
            f"acc * 0 + {width // 2}",
        ]
        if self.width < width:
            shared += ["threadIdx.x", "threadIdx.y", f"threadIdx.x * {width // self.width} + threadIdx.y"]
        if self.loops:
            shared += [self.loops[-1], f"t + {self.loops[-1]}", f"({self.loops[-1]} + t) % 4"]
        return draw.choice(shared)

    @property
    def size(self) -> int:
        return self.threads * self.blocks

    def _place(self) -> tuple[str, str]:
        """An array, and an index of it."""
        draw = self.draw
        array = draw.choice(["a", "a", "s", "c", "b", "f"])
        if array == "b":
            row = draw.choice(["u", "u", "u", "0", "t % 2"]) if draw.some(self.wild) else "u"
            return array, f"{row}, {'t' if not draw.some(self.wild) else draw.choice(['0', 't // 2', 't + 1'])}"
        return array, self._index(array)

    def _load(self) -> str:
        array, index = self._place()
        return f"i32({array}[{index}])" if array == "f" else f"{array}[{index}]"

    def _access(self) -> None:
        draw = self.draw
        array, index = self._place()
        value = draw.choice(["7", "7", "0", "t", "t // 4", "u", "acc", self._load()])
        if array == "f":
            value = f"f32({value})"
        match draw.choice(["read", "read", "write", "write", "copy", "rmw", "atomic", "helper", "local"]):
            case "read":
                self.emit(f"acc += {self._load()}")
            case "write" | "copy":
                self.emit(f"{array}[{index}] = {value}")
            case "rmw":
                self.emit(f"{array}[{index}] += 1")
            case "helper":
                self.emit(f"bump({array}, {index}, 1)" if array not in "bf" else f"{array}[{index}] += 1")
            case "local":
                self.emit(f"acc = acc * 0 + {self._load()}")
            case _:
                self._atomic(array, index)

    def _atomic(self, array: str, index: str) -> None:
        draw = self.draw
        place = f"({index})" if array == "b" else index
        if array == "f":
            self.emit(f"atomic.add({array}, {place}, f32(1))")
            return
        op = draw.choice(["add", "add", "max", "min", "exch", "cas", "cas", "xor", "or_"])
        operands = "0, 7" if op == "cas" else "1"
        if op == "cas" and draw.some(0.4):
            operands = "-99, 7"
        elif op in ("cas", "exch"):
            self.by_chance = True
        call = f"atomic.{op}({array}, {place}, {operands})"
        if draw.some(0.4):
            self.by_chance = True
            self.emit(f"acc += {call}")
        else:
            self.emit(call)
