"""Every interleaving of a few processes over shared memory, checked against a sequential specification.

A process is a list of operations, an operation a generator of steps: it yields ``(what, which, index, ...)``, one access to the memory
cell ``(which, index)``, and is sent what the access answers (`windtunnel.runtime.ring_queue` names them; ``fetch-add`` is known here
too). Each step is indivisible, and all see the steps in one order (sequential consistency).

**All of them.** Breadth first over states: memory, where each process stands, and what the specification still allows. A process's
local state is its generator's frame, the instruction it waits at and its variables: two ways to the same frame go on alike. (So
a generator must hold no state elsewhere: it may not be suspended inside an expression that keeps operands, or loop over an iterator that its
variables do not determine. ``merge=False`` tells processes apart by all they have read instead, and a test compares the counts.)
The number of interleavings is the number of ways through the graph of states, counted afterwards.

**Linearizable.** An operation lasts from its first step to its last, the shortest time it can have been called for, which leaves the
specification the least freedom. Kept with each state is the set of configurations (an abstract state, and which of the operations under way
have taken effect with which response) that explain every response so far: just-in-time linearization (Lowe, "Testing for linearizability",
2017). A response that empties the set is a violation, and breadth first finds a shortest schedule to one.

**Races.** Plain accesses (read, write) to one cell by two processes at once, one of them a write, are violations of their own: atomics order
everything else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = tuple[str, int]
Steps = Generator[tuple[Any, ...], Any, Any]


@dataclass(frozen=True)
class Operation:
    """``kind`` and ``argument``: what it is to the specification. ``steps``: begins it anew."""

    kind: str
    argument: Any
    steps: Callable[[], Steps] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.kind}({'' if self.argument is None else self.argument})"


@dataclass(frozen=True)
class Specification:
    """``apply(state, operation)`` is (response, next state) of an object that does one operation after the other.

    ``excuses``: (kind, response) that is right without any effect too, where an operation of the kind given overlapped.
    """

    initial: Any
    apply: Callable[[Any, Operation], tuple[Any, Any]]
    excuses: Mapping[tuple[str, Any], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Violation:
    problem: str
    schedule: tuple[str, ...]
    """The steps in order, one a line."""

    def __str__(self) -> str:
        return "\n".join([*self.schedule, f"    {self.problem}"])


@dataclass(frozen=True)
class Exploration:
    states: int
    steps: int
    """Transitions between states."""
    ends: int
    """States in which nobody goes on."""
    interleavings: int | None
    """Ways from the beginning to an end; None where a violation cut the search short, or processes can go round in circles."""
    violation: Violation | None

    def __str__(self) -> str:
        count = "" if self.interleavings is None else f", {self.interleavings:.6g} interleavings"
        return f"{self.states:,} states, {self.steps:,} steps, {self.ends:,} ends{count}"


class _Local:
    """Where a process stands: before ``step`` of ``operation``, having read ``answers`` since its beginning."""

    __slots__ = ("answers", "begins", "effects", "id", "operation", "plain", "process", "stage", "step")

    def __init__(
        self, process: int, stage: int, operation: Operation | None, step: Any, answers: tuple[Any, ...]
    ) -> None:
        self.process, self.stage, self.operation, self.step, self.answers = process, stage, operation, step, answers
        self.begins = not answers
        self.plain = (step[1:3], step[0] == "write") if step and step[0] in ("read", "write") else None
        self.effects: dict[int, list[_Effect]] = {}
        self.id = -1


@dataclass(eq=False, slots=True)
class _Effect:
    """A step taken in some memory: the memory after it, where the process stands then, and its response if it ended."""

    memory: int
    answer: Any
    local: _Local
    ended: bool
    response: Any
    monitors: dict[int, int] = field(default_factory=dict)


_STOPPED: tuple[Any, ...] = ()


class Explorer:
    """One exploration; see the module."""

    def __init__(
        self,
        cells: Mapping[Cell, Any],
        processes: Mapping[str, Sequence[Operation]],
        specification: Specification,
        *,
        mortal: Iterable[str] = (),
        weak: bool = False,
        races: bool = True,
        merge: bool = True,
        drain: Operation | None = None,
        at_end: Callable[[dict[Cell, Any], dict[str, tuple[Any, ...]]], str | None] | None = None,
    ) -> None:
        """``mortal``: processes that may stop for good at any step of an operation. ``weak``: a compare-exchange may fail for nothing.

        ``drain``: an operation that is repeated at each end, by itself, until its response is false in its first place: what is left must fit
        too. ``at_end(memory, stopped)``: what is wrong with an end, in words, or None; ``stopped`` has the step that each killed process
        was about to take.
        """
        self.names, self.programs = list(processes), list(processes.values())
        self.mortal = [name in set(mortal) for name in self.names]
        self.specification, self.weak, self.races, self.merge = specification, weak, races, merge
        self.drain, self.at_end = drain, at_end
        self.index = {cell: i for i, cell in enumerate(cells)}
        self.memories: list[tuple[Any, ...]] = [tuple(cells.values())]
        self.memory_ids = {self.memories[0]: 0}
        self.locals: list[_Local] = []
        self.local_ids: dict[Any, _Local] = {}
        self.dead: dict[_Local, _Local] = {}
        idle = (None,) * (len(self.names) + 1)
        first = (idle, frozenset([(specification.initial, idle)]))
        self.monitors: list[Any] = [first]
        self.monitor_ids: dict[Any, int] = {first: 0}

    # Where processes stand

    def _begin(self, process: int, stage: int) -> _Local:
        program = self.programs[process]
        if stage == len(program):
            return self._local((process, stage), process, stage, None, None, ())
        operation = program[stage]
        return self._local((process, stage), process, stage, operation, next(operation.steps()), ())

    def _local(self, key: Any, *what: Any) -> _Local:
        local = self.local_ids.get(key)
        if local is None:
            local = self.local_ids[key] = _Local(*what)
            local.id = len(self.locals)
            self.locals.append(local)
        return local

    def _advance(self, local: _Local, answer: Any) -> tuple[_Local, bool, Any]:
        """(where it stands then, whether the operation ended, its response)."""
        assert local.operation is not None
        steps, answers = local.operation.steps(), (*local.answers, answer)
        try:
            step = next(steps)
            for one in answers:
                step = steps.send(one)
        except StopIteration as end:
            return self._begin(local.process, local.stage + 1), True, end.value
        key = (local.process, local.stage, _frame(steps) if self.merge else answers)
        return self._local(key, local.process, local.stage, local.operation, step, answers), False, None

    def _kill(self, local: _Local) -> _Local:
        if local not in self.dead:
            self.dead[local] = self._local((local, "dead"), local.process, local.stage, None, None, _STOPPED)
        return self.dead[local]

    # What steps do

    def _effects(self, memory: int, local: _Local) -> list[_Effect]:
        found = []
        for after, answer in self._access(self.memories[memory], local.step):
            if after not in self.memory_ids:
                self.memory_ids[after] = len(self.memories)
                self.memories.append(after)
            found.append(_Effect(self.memory_ids[after], answer, *self._advance(local, answer)))
        local.effects[memory] = found
        return found

    def _access(self, memory: tuple[Any, ...], step: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
        what, *cell = step[:3]
        at = self.index[tuple(cell)]  # type: ignore[index]
        found = memory[at]
        if what in ("load", "read"):
            return [(memory, found)]
        if what in ("store", "write"):
            return [((*memory[:at], step[3], *memory[at + 1 :]), None)]
        if what == "fetch-add":
            return [((*memory[:at], found + step[3], *memory[at + 1 :]), found)]
        assert what == "compare-exchange", step
        if found != step[3]:
            return [(memory, (False, found))]
        exchanged = ((*memory[:at], step[4], *memory[at + 1 :]), (True, found))
        return [exchanged, (memory, (False, found))] if self.weak else [exchanged]

    # What the specification allows

    def _monitor(self, monitor: int, process: int, begun: Operation | None, ended: bool, response: Any) -> int:
        """The monitor's state after an operation began, or ended, or both; -1 where nothing explains it."""
        under_way, configurations = self.monitors[monitor]
        if begun is not None:
            others = frozenset(other[0].kind for other in under_way if other)
            under_way = tuple(other and (other[0], other[1] | {begun.kind}) for other in under_way)
            under_way = _put(under_way, process, (begun, others))
            configurations = frozenset((state, _put(marks, process, begun)) for state, marks in configurations)
        if ended:
            operation, overlapped = under_way[process]
            explained = self._explained(configurations, process, response)
            if self.specification.excuses.get((operation.kind, response)) in overlapped:
                # It took no effect: what had it take one already does not explain this.
                excused = [c for c in configurations if c[1][process] == operation]
                explained |= {(state, _put(marks, process, None)) for state, marks in excused}
            configurations = explained
            under_way = _put(under_way, process, None)
        if not configurations:
            return -1
        after = (under_way, configurations)
        if after not in self.monitor_ids:
            self.monitor_ids[after] = len(self.monitors)
            self.monitors.append(after)
        return self.monitor_ids[after]

    def _explained(self, configurations: Iterable[Any], process: int, response: Any) -> frozenset[Any]:
        """Configurations after ``process`` answered: others under way may take effect before it does, in any order."""
        kept, seen, todo = set(), set(configurations), list(configurations)
        while todo:
            state, marks = todo.pop()
            if isinstance(marks[process], tuple):  # it took effect
                if marks[process] == (response,):
                    kept.add((state, _put(marks, process, None)))
                continue
            for other, mark in enumerate(marks):
                if isinstance(mark, Operation):
                    answer, after = self.specification.apply(state, mark)
                    new = (after, _put(marks, other, (answer,)))
                    if new not in seen:
                        seen.add(new)
                        todo.append(new)
        return frozenset(kept)

    # The search

    def run(self) -> Exploration:
        collecting = gc.isenabled()
        gc.disable()  # states refer to no one in a circle, and looking for such takes a third of the time
        try:
            return self._search()
        finally:
            if collecting:
                gc.enable()

    def _search(self) -> Exploration:
        first = (0, *(self._begin(p, 0).id for p in range(len(self.programs))), 0)
        self.ids = {first: 0}
        self.came: list[Any] = [
            None
        ]  # for each state the one before it, the process and its effect (None: it was killed)
        successors: list[list[int]] = []
        order, ends, transitions = [first], 0, 0
        for here, state in enumerate(order):  # grows as it goes
            after: list[int] = []
            successors.append(after)
            memory, monitor = state[0], state[-1]
            for process in range(len(self.names)):
                local = self.locals[state[process + 1]]
                if local.step is None:
                    continue
                for effect in local.effects.get(memory) or self._effects(memory, local):
                    then = monitor
                    if local.begins or effect.ended:
                        then = effect.monitors.get(monitor, -2)
                        if then == -2:
                            begun = local.operation if local.begins else None
                            then = self._monitor(monitor, process, begun, effect.ended, effect.response)
                            effect.monitors[monitor] = then
                    if then < 0:
                        problem = f"no order of the operations explains {_shown(local.operation, effect.response)}"
                        return self._found(problem, here, (process, effect), len(order), transitions)
                    new = (effect.memory, *state[1 : process + 1], effect.local.id, *state[process + 2 : -1], then)
                    after.append(self._visit(new, order, (here, process, effect)))
                    if self.races and effect.local.plain and (race := self._race(new, process)):
                        return self._found(race, here, (process, effect), len(order), transitions)
                if self.mortal[process] and not local.begins:
                    new = (*state[: process + 1], self._kill(local).id, *state[process + 2 :])
                    after.append(self._visit(new, order, (here, process, None)))
            transitions += len(after)
            if not after:
                ends += 1
                if problem := self._wrong_end(state):
                    return self._found(problem, here, None, len(order), transitions)
        return Exploration(len(order), transitions, ends, _ways(successors), None)

    def _visit(self, state: Any, order: list[Any], came: Any) -> int:
        number = self.ids.setdefault(state, len(order))
        if number == len(order):
            order.append(state)
            self.came.append(came)
        return number

    def _race(self, state: Any, process: int) -> str | None:
        cell, writes = self.locals[state[process + 1]].plain  # type: ignore[misc]
        for other in range(len(self.names)):
            plain = self.locals[state[other + 1]].plain
            if other != process and plain and plain[0] == cell and (writes or plain[1]):
                return f"{self.names[process]} and {self.names[other]} access {_cell(cell)} at once, and one writes it"
        return None

    def _wrong_end(self, state: Any) -> str | None:
        memory = self.memories[state[0]]
        if self.at_end:
            dead = {local: alive for alive, local in self.dead.items()}
            stopped = {self.names[p]: self.locals[i] for p, i in enumerate(state[1:-1])}
            steps = {name: dead[local].step for name, local in stopped.items() if local in dead}
            if problem := self.at_end(dict(zip(self.index, memory, strict=True)), steps):
                return problem
        monitor, response = state[-1], (self.drain is not None,)
        while self.drain and response[0]:
            steps, answer = self.drain.steps(), None
            try:
                while True:
                    memory, answer = self._access(memory, steps.send(answer))[0]
            except StopIteration as end:
                response = end.value
            monitor = self._monitor(monitor, len(self.names), self.drain, True, response)
            if monitor < 0:
                return f"afterwards, alone: no order of the operations explains {_shown(self.drain, response)}"
        return None

    def _found(self, problem: str, here: int, last: Any, states: int, transitions: int) -> Exploration:
        taken = [last] if last else []
        while self.came[here] is not None:
            here, *step = self.came[here]
            taken.append(tuple(step))
        lines, local = [], [self._begin(p, 0) for p in range(len(self.names))]
        for number, (process, effect) in enumerate(reversed(taken), 1):
            at = local[process]
            what = "stops for good" if effect is None else _access_shown(at.step, effect.answer)
            lines.append(f"{number:3}  {self.names[process]:3} {str(at.operation) if at.begins else '':9} {what}")
            if effect is not None and effect.ended:
                lines[-1] = f"{lines[-1]:58} {_shown(at.operation, effect.response)}"
            local[process] = at if effect is None else effect.local
        return Exploration(states, transitions, 0, None, Violation(problem, tuple(lines)))


def explore(*arguments: Any, **options: Any) -> Exploration:
    """``Explorer(...).run()``."""
    return Explorer(*arguments, **options).run()


def _frame(steps: Any) -> tuple[Any, ...]:
    """A suspended generator's local state: instruction and variables, and those of the generator it waits for."""
    key: list[Any] = []
    while steps is not None:
        frame = steps.gi_frame
        key.append((frame.f_lasti, *sorted(frame.f_locals.items(), key=lambda item: item[0])))
        steps = steps.gi_yieldfrom
    return tuple(key)


def _put(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _cell(cell: Sequence[Any]) -> str:
    return f"{cell[0]}[{cell[1]}]" if cell[0] not in ("head", "tail") else str(cell[0])


def _access_shown(step: tuple[Any, ...], answer: Any) -> str:
    what, *cell = step[:3]
    if what in ("load", "read"):
        return f"{what} {_cell(cell)}: {answer}"
    if what == "compare-exchange":
        return f"{what} {_cell(cell)} {step[3]} -> {step[4]}: {'yes' if answer[0] else f'no, {answer[1]}'}"
    return f"{what} {_cell(cell)} = {step[3]}"


def _shown(operation: Operation | None, response: Any) -> str:
    parts = response if isinstance(response, tuple) else (response,)
    return f"{operation} = {' '.join(getattr(part, 'name', str(part)) for part in parts if part is not None)}"


def _ways(successors: list[list[int]]) -> int | None:
    """Ways from the first state to those without successors; None where the graph has a cycle."""
    waiting = [0] * len(successors)
    for after in successors:
        for state in after:
            waiting[state] += 1
    ways = [0] * len(successors)
    ways[0], ready, ended, done = 1, [0], 0, 0
    if waiting[0]:
        return None
    while ready:
        state = ready.pop()
        done += 1
        if not successors[state]:
            ended += ways[state]
        for after in successors[state]:
            ways[after] += ways[state]
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
        ways[state] = 0
    return ended if done == len(successors) else None
