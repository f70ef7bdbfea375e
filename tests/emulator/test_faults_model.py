"""Faults compared with a model of docs/testing.md: which call fails, how, and the state that it leaves.

A `World` does what a program does, on an emulated device. A `Reference`, which knows nothing of runtime/faults.py, says
of each call what must come of it. Chance is the one thing that it cannot know: whether a fault of probability 0.5 has
struck it reads in the log, and holds the rest against it. In the end the same script in a fresh world must do the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.emulator.faults_reference import STRIKES, Declared, Reference, Verdict, ticks
from tests.emulator.faults_world import ELEMENTS, KERNELS, SKU, World

from windtunnel.core import errors
from windtunnel.runtime.faults import FaultNotFired

OFTEN = sorted(STRIKES) + ["hang", "slow_copy", "throttle"] + 2 * ["corrupt_copy"]


def faults() -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    """A fault that can strike, as items of its data."""

    @st.composite
    def one(draw: st.DrawFn) -> tuple[tuple[str, Any], ...]:
        # What takes the device away leaves little to be seen of the others, so it comes seldom.
        kind = draw(st.sampled_from(OFTEN))
        found: dict[str, Any] = {"kind": kind}
        when = draw(st.sampled_from(["call", "call", "call", "probability", "after_s", "none"]))
        values = {"call": [1, 2, 3], "probability": [1.0, 0.5], "after_s": [0.0, 2e-5, 1e-3]}
        if when != "none":
            found[when] = draw(st.sampled_from(values[when]))
        if draw(st.booleans()):
            found["times"] = draw(st.integers(1, 3))
        if draw(st.booleans()):
            found["on"] = draw(st.sampled_from(sorted(STRIKES[kind])))
        if "launch" in STRIKES[kind] and found.get("on", "launch") == "launch" and draw(st.integers(0, 3)) == 0:
            found["kernel"] = draw(st.sampled_from(sorted(KERNELS)))
        if kind in ("slow_copy", "throttle"):
            found["factor"] = draw(st.sampled_from([2.0, 3.5]))
        if kind == "hang":
            found["watchdog_timeout_s"] = draw(st.sampled_from([0.01, 0.5]))
        return tuple(found.items())

    return one()


plans = st.lists(faults(), min_size=2, max_size=6, unique_by=lambda one: str(Declared(dict(one))))
sizes = st.sampled_from([1, 3, 64, 4096])
places = st.integers(0, 5)
streams = st.integers(0, 2)


class FaultsMachine(RuleBasedStateMachine):
    """The world and the reference side by side."""

    @initialize(stated=plans, seed=st.integers(0, 9))
    def begin(self, stated: list[tuple[tuple[str, Any], ...]], seed: int) -> None:
        self.world, self.reference = World(), Reference()
        self.graphs: list[tuple[int, tuple[str, ...], bytes]] = []
        self.recorded: set[int] = set()
        self.clock_s = self.energy_j = 0.0
        self.failed = 0
        self.some_memory()
        self.arm(stated, seed)

    def some_memory(self) -> None:
        """So that most calls have something to be about."""
        self.allocate(64, "device")
        self.allocate(3, "unified")

    # One call of the program, held against the reference.

    def call(self, operation: str | None, what: str, *arguments: Any, kernel: str | None = None) -> tuple[Any, Verdict]:
        """Do it; (what came of it, what had to). ``operation``: None for what is no call that a fault can concern."""
        logged, seen = len(self.world.device.injected_faults), len(self.world.spans)
        clock_s = self.world.device.clock_s
        found, error = self.world.do(what, *arguments)
        self.news = self.world.device.injected_faults[logged:]
        self.spans = [span for span in self.world.spans[seen:] if span.engine != "markers"]
        self.raised = error
        if operation is None:
            return found, Verdict()
        verdict = self.reference.judge(operation, clock_s, self.news, kernel)
        if operation == "allocate" and verdict.error is None and what == "to_device":
            clock_s += self.reference.taken(len(arguments[0]))
            verdict = self.reference.judge("copy_in", clock_s, self.news)
            if verdict.error is not None:
                self.reference.pool[False, -(-len(arguments[0]) // 512)] += 1
        return found, verdict

    def settle(self, verdict: Verdict, *, waits: bool = False) -> bool:
        """Whether the call went well, as it should; a wait meets what hangs."""
        assert not self.news, "the log has lines that no call accounts for"
        reference = self.reference
        if verdict.error is None and waits and reference.hangs is not None:
            until_s, seed = reference.hangs
            reference.hangs, reference.gone = None, "DeviceHang"
            assert type(self.raised).__name__ == "DeviceHang" and f"seed {seed})" in str(self.raised)
            ended_s = max([span.end / 1e12 for span in self.world.spans], default=0.0)
            assert until_s - 1e-9 <= self.world.device.clock_s <= max(until_s, ended_s, self.clock_s) + 1e-4
            return False
        name = None if self.raised is None else type(self.raised).__name__
        assert name == verdict.error, (self.raised, verdict)
        if self.raised is None:
            return True
        assert isinstance(self.raised, errors.DeviceError)
        assert verdict.says in str(self.raised) and self.raised.device == SKU and self.raised.api == "cuda"
        assert not self.spans, "what failed took no time on the device"
        self.failed += self.reference.gone is not None
        if self.failed > 2:
            self.reset()
        return False

    def refused(self, says: str) -> None:
        """A mistake of the program's own: told at once, and no call that a fault could count."""
        assert isinstance(self.raised, (errors.InvalidArgument, errors.LaunchError)) and says in str(self.raised)
        assert not self.news and not self.spans

    def took(self, expected: list[float]) -> None:
        assert [span.end - span.start for span in self.spans] == [round(one) for one in expected]

    def alive(self, place: int) -> int | None:
        """A buffer that is there, chosen by a number; None when there is none, and none could be had."""
        if not self.reference.data and self.reference.gone is None:
            self.some_memory()
        live = sorted(self.reference.data)
        return live[place % len(live)] if live else None

    def held(self, place: int, wrong: list[int], offset: int = 0) -> None:
        """A buffer holds what the reference says but for the bits that faults flipped, which it then takes over."""
        self.reference.data[place] = self.differs(self.world.inside(place), self.reference.data[place], wrong)

    def differs(self, found: np.ndarray, expected: np.ndarray, wrong: list[int]) -> np.ndarray:
        bits = np.unpackbits(found ^ expected, bitorder="little")
        flipped = Counter(wrong)
        assert sorted(np.flatnonzero(bits)) == sorted(bit for bit, times in flipped.items() if times % 2)
        return found

    # Memory.

    @rule(size=sizes | st.just(10**12), kind=st.sampled_from(["device", "device", "unified"]))
    def allocate(self, size: int, kind: str) -> None:
        _, verdict = self.call("allocate", "empty", size, kind)
        if verdict.error is None and size > 10**11:
            verdict = Verdict("DeviceOutOfMemory", "bytes are free")
        if self.settle(verdict):
            place = len(self.world.buffers) - 1
            self.reference.data[place] = np.zeros(size, ELEMENTS)
            self.reference.taken(size, kind == "unified")
            if kind == "unified":
                self.reference.unified[place] = None
            self.reference.counts["allocations"] += 1

    @rule(values=st.binary(min_size=1, max_size=70))
    def to_device(self, values: bytes) -> None:
        before = self.world.device.counters.allocations
        _, verdict = self.call("allocate", "to_device", values)
        allocated = self.world.device.counters.allocations - before
        self.reference.counts["allocations"] += allocated
        copied = verdict.error is None
        if copied:
            self.reference.counts["copied_bytes"] += len(values)
        # The copy is pageable, and waits; what it was to fill is given back where it fails.
        if self.settle(verdict, waits=True):
            assert allocated == 1
            place = len(self.world.buffers) - 1
            self.reference.data[place] = np.frombuffer(values, ELEMENTS).copy()
            self.held(place, verdict.corrupt)
            (base,) = ticks("copy_in", len(values), 0)
            self.took([base * verdict.factor])

    @rule(place=places)
    def free(self, place: int) -> None:
        chosen = self.alive(place)
        if chosen is None:
            return
        self.call(None, "free", chosen)
        assert self.raised is None
        unified = chosen in self.reference.unified
        self.reference.pool[unified, -(-self.reference.data.pop(chosen).nbytes // 512)] += 1
        self.reference.unified.pop(chosen, None)
        for what, *arguments in (
            ("free", chosen),
            ("launch", "double", chosen, 32, 0),
            ("copy_out", chosen, 1, 1, 0, False),
            ("copy_in", chosen, b"1", 0, False),
        ):
            self.call(None, what, *arguments)
            self.refused("was freed")

    # Copies.

    @rule(place=places, values=st.binary(min_size=1, max_size=64), stream=streams, pinned=st.booleans())
    def copy_in(self, place: int, values: bytes, stream: int, pinned: bool) -> None:
        chosen = self.alive(place)
        if chosen is None:
            return
        values = values[: self.reference.data[chosen].size]
        _, verdict = self.call("copy_in", "copy_in", chosen, values, stream, pinned)
        if verdict.error is None:
            self.reference.counts["copied_bytes"] += len(values)
            self.reference.data[chosen][: len(values)] = np.frombuffer(values, ELEMENTS)
            assert all(bit < 8 * len(values) for bit in verdict.corrupt)
            self.held(chosen, verdict.corrupt)
            (base,) = ticks("copy_in", len(values), int(pinned))
            self.took([base * verdict.factor])
        self.settle(verdict, waits=not pinned)

    @rule(
        place=places,
        share=st.sampled_from([1.0, 0.3]),
        stride=st.sampled_from([3, 1]),
        stream=streams,
        pinned=st.booleans(),
    )
    def copy_out(self, place: int, share: float, stride: int, stream: int, pinned: bool) -> None:
        chosen = self.alive(place)
        if chosen is None:
            return
        size = max(int(self.reference.data[chosen].size * share), 1)
        found, verdict = self.call("copy_out", "copy_out", chosen, size, stride, stream, pinned)
        if verdict.error is None:
            self.reference.counts["copied_bytes"] += size
            (base,) = ticks("copy_out", size, int(pinned))
            self.took([base * verdict.factor])
        if self.settle(verdict, waits=not pinned):
            # What is on its way is looked at past all calls, as a wait would meet faults of its own.
            there = np.array(self.world.device.context.pending_copy_view(found))
            self.differs(there, self.reference.data[chosen][:size], verdict.corrupt)

    @rule(to=places, source=places, stream=streams)
    def copy_within(self, to: int, source: int, stream: int) -> None:
        one, other = self.alive(to), self.alive(source)
        if one is None or other is None:
            return
        mine, size = self.reference.data, self.reference.data[other].size
        if one == other or mine[one].size < size:
            self.call(None, "copy_within", one, other, stream)
            self.refused("overlaps itself" if one == other else "does not fit into")
            return
        _, verdict = self.call("copy_within", "copy_within", one, other, stream)
        if self.settle(verdict):
            self.reference.counts["copied_bytes"] += size
            mine[one][:size] = mine[other]
            assert all(bit < 8 * size for bit in verdict.corrupt)
            self.held(one, verdict.corrupt)
            (base,) = ticks("copy_within", size)
            self.took([base * verdict.factor])

    # Kernels.

    @rule(
        kernel=st.sampled_from(sorted(KERNELS)),
        place=places,
        block=st.sampled_from([32, 32, 1024, 1025]),
        stream=streams,
    )
    def launch(self, kernel: str, place: int, block: int, stream: int) -> None:
        chosen = self.alive(place)
        if chosen is None:
            return
        if block > 1024:
            self.call(None, "launch", kernel, chosen, block, stream)
            self.refused("1,025 threads a block, of at most 1,024")
            return
        _, verdict = self.call("launch", "launch", kernel, chosen, block, stream, kernel=kernel)
        if self.settle(verdict):
            self.reference.counts["launches"] += 1
            KERNELS[kernel](self.reference.data[chosen])
            size = self.reference.data[chosen].size
            (base,) = ticks("launch", size, block)
            self.took([*self.moved(chosen), base * verdict.factor])

    def moved(self, place: int) -> list[float]:
        """What bringing a unified buffer's pages to the device takes; a fault of the launch does not lengthen it."""
        if place not in self.reference.unified:
            return []
        before, self.reference.unified[place] = self.reference.unified[place], True
        return [] if before is not False else list(ticks("migrate", self.reference.data[place].size, 1))

    @rule(
        place=places,
        kernels=st.lists(st.sampled_from(sorted(KERNELS)), min_size=1, max_size=3),
        values=st.binary(min_size=1, max_size=9),
    )
    def build_graph(self, place: int, kernels: list[str], values: bytes) -> None:
        chosen = self.alive(place)
        if chosen is not None:
            values = values[: self.reference.data[chosen].size]
            self.call(None, "graph", chosen, tuple(kernels), values)
            assert self.raised is None and not self.spans
            self.graphs.append((chosen, tuple(kernels), values))
            self.replay(len(self.graphs) - 1, 0)

    @precondition(lambda self: self.graphs)
    @rule(graph=places, stream=streams)
    def replay(self, graph: int, stream: int) -> None:
        chosen = graph % len(self.graphs)
        place, kernels, values = self.graphs[chosen]
        if place not in self.reference.data:
            self.call(None, "replay", chosen, stream)
            self.refused("was freed")
            return
        _, verdict = self.call("launch", "replay", chosen, stream)
        if self.settle(verdict):
            data = self.reference.data[place]
            data[: len(values)] = np.frombuffer(values, ELEMENTS)
            for kernel in kernels:
                KERNELS[kernel](data)
            self.reference.counts["launches"] += 1
            self.reference.counts["copied_bytes"] += len(values)
            # Kernels are throttled; the copy between them and the gaps from node to node are not.
            copy, *nodes = ticks("replay", data.size, len(values), len(kernels))
            (alone,) = ticks("launch", data.size, 32)
            stretched = [round(alone * verdict.factor) + node - alone for node in nodes]
            self.took([*self.moved(place), copy, *stretched])

    # Waiting.

    @rule(event=st.integers(0, 1), stream=streams, waits=st.booleans())
    def mark(self, event: int, stream: int, waits: bool) -> None:
        """What a stream is told takes no time, and is no call that a fault concerns."""
        if waits and stream:
            self.call(None, "stream_waits", stream, event)
        else:
            self.call(None, "record", event, stream)
            self.recorded.add(event)
        assert self.raised is None and not self.spans

    @rule(way=st.sampled_from(["device", "stream", "event", "host"]), place=places)
    def wait(self, way: str, place: int) -> None:
        if way == "host":
            self.wait_for_memory(place)
            return
        number = place % 2
        if way == "event" and number not in self.recorded:
            self.call(None, "wait_for_event", number)
            self.refused("was not recorded")
            return
        arguments = {"device": ("synchronize",), "stream": ("wait_for_stream", 1 + number)}
        _, verdict = self.call("synchronize", *arguments.get(way, ("wait_for_event", number)))
        self.settle(verdict, waits=True)

    def wait_for_memory(self, place: int) -> None:
        """The host looks at unified memory, after which a launch has to move it back."""
        chosen = self.alive(place)
        if chosen is None:
            return
        if self.reference.unified and place % 3:
            chosen = sorted(self.reference.unified)[place % len(self.reference.unified)]
        if chosen not in self.reference.unified:
            self.call(None, "host", chosen)
            self.refused("the host cannot access device memory")
            return
        _, verdict = self.call("synchronize", "host", chosen)
        if self.settle(verdict, waits=True):
            moves = self.reference.unified[chosen]
            self.took(list(ticks("migrate", self.reference.data[chosen].size)) if moves else [])
            self.reference.unified[chosen] = False
            self.launch("double", sorted(self.reference.data).index(chosen), 32, place % 3)

    # Plans.

    @rule(stated=plans, seed=st.integers(0, 9))
    def arm(self, stated: list[tuple[tuple[str, Any], ...]], seed: int) -> None:
        """What was armed before ends here, or goes on for the next."""
        if self.reference.faults is not None:
            self.disarm()
        self.call(None, "arm", tuple(stated), seed)
        self.reference.faults, self.reference.seed = [Declared(dict(one)) for one in stated], seed
        self.reference.log = []
        with pytest.raises(errors.InputError, match="armed already"), self.world.device.faults("ecc"):
            pass

    def disarm(self) -> None:
        missed = [one for one in self.reference.faults or () if not one.struck and "probability" not in one.data]
        assert self.world.plan.log == self.reference.log
        self.call(None, "disarm")
        self.reference.faults = None
        if not missed:
            assert self.raised is None
            return
        assert isinstance(self.raised, FaultNotFired)
        said = [f"{one} (of {one.concerned} eligible calls)" for one in missed]
        assert str(self.raised) == f"never occurred: {'; '.join(said)}; seed {self.reference.seed}"

    @precondition(lambda self: self.reference.gone is not None or self.reference.hangs is not None)
    @rule()
    def reset(self) -> None:
        self.call(None, "reset")
        assert self.raised is None and not self.spans
        self.reference.gone = self.reference.hangs = None
        self.failed = 0
        self.reference.lost()

    # What always holds.

    @invariant()
    def nothing_is_lost(self) -> None:
        device, reference = self.world.device, self.reference
        assert device.allocated_bytes == sum(data.nbytes for data in reference.data.values())
        counters = device.counters
        found = {
            "launches": counters.launches,
            "copied_bytes": counters.copied_bytes,
            "allocations": counters.allocations,
        }
        assert found == dict(reference.counts)
        for place, data in reference.data.items():
            assert np.array_equal(self.world.inside(place), data)

    @invariant()
    def time_and_energy_go_on(self) -> None:
        device = self.world.device
        assert device.clock_s >= self.clock_s and device.energy_j >= self.energy_j * (1 - 1e-12)
        self.clock_s, self.energy_j = device.clock_s, device.energy_j

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.reference.faults is not None:
            self.disarm()
        again = World()
        for what, arguments in self.world.script:
            again.do(what, *arguments)
        assert (
            again.outcomes == self.world.outcomes and again.device.injected_faults == self.world.device.injected_faults
        )
        assert again.device.clock_s == self.world.device.clock_s
        # Energy is added up when it is looked at, which was here more often.
        assert again.device.energy_j == pytest.approx(self.world.device.energy_j, rel=1e-12)


FaultsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestFaults = FaultsMachine.TestCase
