"""Job programs made into what a device does: segments of time and power, for every job of a workload at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, UnsupportedOperationError, Where
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import Sourced
from windtunnel.core.rng import stream
from windtunnel.core.ticks import FloatArray, TickArray, to_tick_array, to_ticks
from windtunnel.engine.arrivals import TraceRows
from windtunnel.engine.arrivals.distributions import unit_variates
from windtunnel.engine.prepare.decoding import DecoderCostCache, DecoderCosts
from windtunnel.scenario.program import Branch, ColumnRef, Generate, OpStage, Stage, Streams, Value

WATT_GRAIN = 2.0**-20
"""Powers are kept to multiples of this (about a microwatt), so that sums and differences of them are exact."""


LONGEST_CONTEXT = 4_194_304
"""Tokens of one sequence beyond which tables of attention are not made."""

MOST_PATHS = 256
"""Ways through a program's branches; each is compiled for every job."""

_CROWD = 1e6
"""Requests in flight at which every device has long been saturated."""


def round_power(watts: float) -> float:
    """``watts`` to the nearest multiple of WATT_GRAIN."""
    return round(watts / WATT_GRAIN) * WATT_GRAIN


@dataclass(frozen=True)
class ServiceTimeDraws:
    """Draws of mean 1 for a stated time, one a job of a workload in order.

    Keyed by seed, workload and the stage's place, so the i-th is the i-th job's in whatever blocks they are drawn.
    """

    seed: int
    name: tuple[str, ...]
    distribution: str
    cv: float
    count: int

    @cached_property
    def values(self) -> FloatArray:
        """All of them."""
        return self.drawing()(self.count)

    def drawing(self) -> Callable[[int], FloatArray]:
        """A function that gives the next so many draws each time, from the first."""
        rng = stream(self.seed, *self.name)
        return lambda count: unit_variates(rng, self.distribution, self.cv, count)


@dataclass(frozen=True)
class Drawn:
    """A stated time drawn for each job: ``seconds`` times the job's variate."""

    seconds: float
    variates: ServiceTimeDraws

    def ticks(self) -> TickArray:
        """Every job's, to the nearest tick."""
        return to_tick_array(self.seconds * self.variates.values)


@dataclass(frozen=True)
class Segment:
    """Time on one engine of a device. ``ticks`` and ``watts`` (above idle) are one number, or one a job by its rank.

    ``share`` of the engine is taken: an engine that serves n requests side by side gives each an n-th.
    """

    engine: str
    name: str
    span: int | TickArray | Drawn
    watts: float | FloatArray
    share: float = 1.0
    rows: Rows | None = None
    """What it is, for devices that execute it; None for what is more than one operation."""

    @cached_property
    def ticks(self) -> int | TickArray:
        """How long it takes; drawn times are worked out when first asked for."""
        return self.span.ticks() if isinstance(self.span, Drawn) else self.span

    @property
    def drawn(self) -> Drawn | None:
        """Where a stated time is drawn for each job."""
        return self.span if isinstance(self.span, Drawn) else None

    def columns(self, rank: int) -> dict[str, float | str]:
        """The operation's columns of the job of that rank."""
        assert self.rows is not None  # noqa: S101  whoever executes it has seen that it is one operation
        numbers = {name: float(v[0] if len(v) == 1 else v[rank]) for name, v in self.rows.numbers.items()}
        return {**numbers, **self.rows.choices}

    def at(self, rank: int) -> tuple[int, float]:
        """(ticks, watts above idle) of the job of that rank."""
        ticks = self.ticks if isinstance(self.ticks, int) else int(self.ticks[rank])
        watts = self.watts if isinstance(self.watts, float) else float(self.watts[rank])
        return ticks, watts


Body = tuple[Segment, ...]
Phase = tuple[Body, ...]
"""Bodies that run side by side; a job's phases follow each other."""


@dataclass(frozen=True)
class Compiled:
    """One workload's program on one class of device.

    ``variants`` are the ways through its branches and ``variant_of`` which one each job takes (None: all the
    first). ``estimate_s`` is the expected time of a job until its first result, ``mean_s`` the mean of that,
    ``energy_j`` the energy of a whole job with the device's idle power, ``footprint_bytes`` the memory it needs;
    each one number or one a job. ``operations`` names what was priced.
    ``decoder`` is set when the program is a single `generate`.
    """

    variants: Sequence[Sequence[Phase]]
    variant_of: np.ndarray | None
    estimate_s: FloatArray
    mean_s: float
    energy_j: FloatArray
    footprint_bytes: FloatArray
    sources: Mapping[str, Sourced]
    operations: frozenset[str]
    decoder: DecoderCosts | None = None
    prompts: np.ndarray | None = None
    outputs: np.ndarray | None = None
    first_ticks: TickArray | None = None

    def phases(self, rank: int) -> Sequence[Phase]:
        """The phases of the job of that rank."""
        return self.variants[0 if self.variant_of is None else int(self.variant_of[rank])]

    def segments(self) -> Iterator[Segment]:
        """Every segment of every way through the program."""
        for phases in self.variants:
            for phase in phases:
                for body in phase:
                    yield from body

    @property
    def single(self) -> Segment | None:
        """The program's only segment, where it has just one: the common case, and the quick one."""
        if len(self.variants) == 1 and len(self.variants[0]) == 1:
            (phase,) = self.variants[0]
            if len(phase) == 1 and len(phase[0]) == 1:
                return phase[0][0]
        return None


@dataclass
class Source:
    """A workload's arrivals, and where its jobs' values and draws come from: its trace, its place, the seed."""

    name: str
    seed: int
    ticks: TickArray
    trace: TraceRows | None
    where: Callable[[tuple[str | int, ...]], Where]
    _variates: dict[tuple[str | int, ...], ServiceTimeDraws] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Jobs of the workload."""
        return len(self.ticks)

    def value(self, value: Value, path: tuple[str | int, ...]) -> FloatArray:
        """A value for every job: an array of one element where it is the same for all."""
        if not isinstance(value, ColumnRef):
            return np.array([value], dtype=np.float64)
        return self._trace(value.name, path).numbers(value.name, self.where(path))

    def words(self, column: str, path: tuple[str | int, ...]) -> list[str]:
        """A trace column's words, job by job."""
        return self._trace(column, path).words(column, self.where(path))

    def variates(self, stage: OpStage) -> ServiceTimeDraws:
        """Draws for a stated time, one a job."""
        if stage.path not in self._variates:
            cv = stage.numbers["cv"]
            if isinstance(cv, ColumnRef):
                raise InputError("cv cannot come from a column", where=self.where(stage.path), expected="a number")
            name = (self.name, "service", *(str(part) for part in stage.path[2:]))
            self._variates[stage.path] = ServiceTimeDraws(
                self.seed, name, stage.choices["distribution"], cv, self.count
            )
        return self._variates[stage.path]

    def _trace(self, column: str, path: tuple[str | int, ...]) -> TraceRows:
        if self.trace is None:
            raise InputError(
                f"'${column}' needs a trace, and the arrivals of '{self.name}' are not one",
                where=self.where(path),
                expected="a number, or arrivals: {process: trace, ...}",
            )
        return self.trace


def compile_program(program: Sequence[Stage], device: Device, source: Source, decoders: DecoderCostCache) -> Compiled:
    """A workload's program on a device, for every job at once.

    Raises UnsupportedOperationError for what the device does not run.
    """
    if len(program) == 1 and isinstance(program[0], Generate):
        return _compile_generate(program[0], device, source, decoders)
    return _Compiler(device, source, decoders).compile(program)


@dataclass
class _Compiler:
    device: Device
    source: Source
    decoders: DecoderCostCache
    sources: dict[str, Sourced] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)
    _priced: dict[tuple[str | int, ...], tuple[Segment, FloatArray, FloatArray]] = field(default_factory=dict)

    def compile(self, program: Sequence[Stage]) -> Compiled:
        variants: list[list[Phase]] = []
        estimates: list[FloatArray] = []
        energies: list[FloatArray] = []
        footprints: list[FloatArray] = []
        choice = np.full(self.source.count, -1, dtype=np.int64)
        flats = list(_paths(program))
        if len(flats) > MOST_PATHS:
            raise InputError(
                f"this program has {len(flats):,} ways through its branches",
                where=self.source.where(flats[0][0][0][0].path),
                expected=f"at most {MOST_PATHS}",
            )
        for number, (conditions, stages) in enumerate(flats):
            choice[self._taken(conditions)] = number
            phases: list[Phase] = []
            seconds, joules, footprint = np.zeros(1), np.zeros(1), np.zeros(1)
            for stage in stages:
                bodies = stage.bodies if isinstance(stage, Streams) else ((stage,),)
                timed = [self._body(body) for body in bodies]
                phases.append(tuple(body for body, *_ in timed))
                seconds = seconds + _largest([t for _, t, _, _ in timed])
                joules = joules + sum(j for _, _, j, _ in timed)
                footprint = np.maximum(footprint, sum(f for _, _, _, f in timed))
            variants.append(_joined(phases))
            estimates.append(seconds)
            energies.append(joules + seconds * self.device.idle_power_w)
            footprints.append(footprint)
        if (choice < 0).any():
            raise self._no_way(program, int(np.argmax(choice < 0)))
        if len(flats) == 1:
            estimate, energy, footprint = estimates[0], energies[0], footprints[0]
        else:
            estimate, energy, footprint = (
                np.choose(choice, np.broadcast_arrays(*parts)) if len(parts) <= 32 else _pick(choice, parts)
                for parts in (_full(estimates, choice), _full(energies, choice), _full(footprints, choice))
            )
        return Compiled(
            variants=variants,
            variant_of=choice if len(flats) > 1 else None,
            estimate_s=estimate,
            mean_s=float(estimate.mean()),
            energy_j=energy,
            footprint_bytes=footprint,
            sources=self.sources,
            operations=frozenset(self.operations),
        )

    def _taken(self, conditions: Sequence[tuple[Branch, str | None]]) -> np.ndarray:
        """Which jobs take the way that these conditions describe."""
        taken = np.ones(self.source.count, dtype=bool)
        for branch, word in conditions:
            words = self.source.words(branch.column, (*branch.path, "on"))
            if word is not None:
                taken &= np.array([w == word for w in words])
                continue
            taken &= np.array([w not in branch.cases for w in words])
        return taken

    def _no_way(self, program: Sequence[Stage], row: int) -> InputError:
        """The error for a job that no way through the program takes: the branch on its way that lacks its word."""
        trace = self.source.trace
        stages = list(program)
        while stages:
            stage = stages.pop(0)
            if not isinstance(stage, Branch):
                continue
            word = self.source.words(stage.column, (*stage.path, "on"))[row]
            body = stage.cases.get(word, stage.default)
            if body is None:
                return InputError(
                    f"'{word}' is none of the cases of this branch",
                    where=trace.place(row, stage.column) if trace is not None else None,
                    expected=f"one of {', '.join(stage.cases)}, or a default",
                )
            stages = [*body, *stages]
        raise AssertionError("every branch has a case for the job, and yet no way takes it")

    def _body(self, body: Sequence[Stage]) -> tuple[Body, FloatArray, FloatArray, FloatArray]:
        """Segments in order, with the expected seconds, joules above idle and memory of the whole."""
        segments: list[Segment] = []
        seconds, joules, footprint = np.zeros(1), np.zeros(1), np.zeros(1)
        for stage in body:
            if isinstance(stage, Generate):
                inner = _compile_generate(stage, self.device, self.source, self.decoders)
                segment = inner.single
                assert segment is not None  # noqa: S101  a request served alone is one segment
                segments.append(segment)
                time_s = np.asarray(segment.ticks) / 1e12
                self.sources.update(inner.sources)
                self.operations |= inner.operations
                footprint = np.maximum(footprint, inner.footprint_bytes)
                seconds, joules = seconds + time_s, joules + time_s * segment.watts
            elif isinstance(stage, OpStage):
                segment, mean_s, stage_bytes = self._operation(stage)
                segments.append(segment)
                footprint = np.maximum(footprint, stage_bytes)
                seconds, joules = seconds + mean_s, joules + mean_s * segment.watts
        return tuple(segments), seconds, joules, footprint

    def _operation(self, stage: OpStage) -> tuple[Segment, FloatArray, FloatArray]:
        """The stage's segment, expected seconds and memory; a repeated stage is priced once."""
        if stage.path not in self._priced:
            self._priced[stage.path] = self._price(stage)
        return self._priced[stage.path]

    def _price(self, stage: OpStage) -> tuple[Segment, FloatArray, FloatArray]:
        numbers = {key: self.source.value(value, (*stage.path, key)) for key, value in stage.numbers.items()}
        rows = Rows(stage.op, stage.choices, numbers)
        try:
            cost = self.device.cost(rows, intervals=False)
            engine = self.device.engine_of(rows)
            self.sources.update(self.device.sources(rows))
            self.operations.add(rows.op.name)
            span = self._span(stage, cost.duration_s)
        except InputError as error:
            raise error.at(self.source.where(stage.path)) from None
        watts = np.maximum(np.rint((cost.power_w - self.device.idle_power_w) / WATT_GRAIN), 0.0) * WATT_GRAIN
        seconds = cost.duration_s
        power = float(watts[0]) if len(watts) == 1 or (watts == watts[0]).all() else watts
        share = 1.0 / self._side_by_side(rows, seconds)
        segment = Segment(engine, stage.op.name, span, power, share, rows)
        return segment, seconds, rows.footprint_bytes()

    def _span(self, stage: OpStage, seconds: FloatArray) -> int | TickArray | Drawn:
        """Each job's duration, or one for all; a stated time is drawn for each."""
        drawn = stage.op.name == "service" and (stage.choices["distribution"] != "deterministic" or len(seconds) > 1)
        if not drawn:
            return _one_or_all(to_tick_array(seconds))
        variates = self.source.variates(stage)
        return Drawn(float(seconds[0]), variates) if len(seconds) == 1 else to_tick_array(seconds * variates.values)

    def _side_by_side(self, rows: Rows, alone_s: FloatArray) -> int:
        """How many single requests an engine serves at once: until more of them would make no request a second more.

        By Little's law that is the time of one alone over the time each costs with very many in flight.
        """
        if "in_flight" not in rows.numbers or (rows.numbers["in_flight"] > 1).any():
            return 1
        crowded = Rows(rows.op, rows.choices, {**rows.numbers, "in_flight": np.full(1, _CROWD)})
        each_s = self.device.cost(crowded, intervals=False).duration_s
        return max(1, int(np.min(alone_s / each_s) + 1e-9))


def _compile_generate(stage: Generate, device: Device, source: Source, decoders: DecoderCostCache) -> Compiled:
    prompts = source.value(stage.prompt, (*stage.path, "prompt"))
    outputs = source.value(stage.output, (*stage.path, "output"))
    longest = float((prompts + outputs).max())
    if longest > LONGEST_CONTEXT:
        raise InputError(
            f"a job has {longest:,.0f} tokens",
            where=source.where(stage.path),
            expected=f"at most {LONGEST_CONTEXT:,} of prompt and output together",
        )
    try:
        costs = decoders[stage.model]
    except InputError as error:
        raise error.at(source.where(stage.path)) from None
    model = costs.model
    prompts, outputs = (np.broadcast_to(a, (source.count,)) for a in (prompts, outputs))
    first_s, whole_s, _, whole_j = costs.alone(prompts, outputs)
    footprint = model.weight_bytes + (prompts + outputs) * model.kv_bytes_per_token
    ticks = to_tick_array(whole_s)
    watts = np.rint(whole_j / np.maximum(whole_s, 1e-12) / WATT_GRAIN) * WATT_GRAIN
    return Compiled(
        variants=[[((Segment("compute", "generate", ticks, watts),),)]],
        variant_of=None,
        estimate_s=first_s,
        mean_s=float(first_s.mean()),
        energy_j=whole_j + whole_s * device.idle_power_w,
        footprint_bytes=footprint,
        sources=costs.sources,
        operations=costs.operations,
        decoder=costs,
        prompts=prompts.astype(np.int64),
        outputs=outputs.astype(np.int64),
        first_ticks=to_tick_array(first_s),
    )


def longest_contexts(program: Sequence[Stage], source: Source) -> Iterator[tuple[str, int]]:
    """Each model that a program generates with, and the longest context any job takes it to."""
    for stage in program:
        if isinstance(stage, Generate):
            prompts = source.value(stage.prompt, (*stage.path, "prompt"))
            yield stage.model, int((prompts + source.value(stage.output, (*stage.path, "output"))).max())
        elif isinstance(stage, Branch):
            for body in [*stage.cases.values(), stage.default or ()]:
                yield from longest_contexts(body, source)


def _paths(program: Sequence[Stage]) -> Iterator[tuple[list[tuple[Branch, str | None]], list[Stage]]]:
    """Every way through a program's branches: the words that lead there, and the stages on it."""
    for i, stage in enumerate(program):
        if isinstance(stage, Branch):
            before, after = list(program[:i]), list(program[i + 1 :])
            ways: list[tuple[str | None, Sequence[Stage]]] = [*stage.cases.items()]
            if stage.default is not None:
                ways.append((None, stage.default))
            for word, body in ways:
                for conditions, stages in _paths([*body, *after]):
                    yield [(stage, word), *conditions], [*before, *stages]
            return
    yield [], list(program)


def _joined(phases: Sequence[Phase]) -> list[Phase]:
    """Phases of one body each, one after another, as one phase: fewer things to keep track of, the same times."""
    joined: list[Phase] = []
    for phase in phases:
        if joined and len(phase) == 1 and len(joined[-1]) == 1:
            joined[-1] = ((*joined[-1][0], *phase[0]),)
        else:
            joined.append(phase)
    return joined


def _one_or_all(ticks: TickArray) -> int | TickArray:
    return int(ticks[0]) if len(ticks) == 1 else ticks


def _largest(arrays: Sequence[FloatArray]) -> FloatArray:
    result = arrays[0]
    for array in arrays[1:]:
        result = np.maximum(result, array)
    return result


def _full(arrays: Sequence[FloatArray], choice: np.ndarray) -> list[FloatArray]:
    return [np.broadcast_to(array, choice.shape) for array in arrays]


def _pick(choice: np.ndarray, parts: Sequence[FloatArray]) -> FloatArray:
    result = np.empty(choice.shape)
    for number, part in enumerate(parts):
        result[choice == number] = part[choice == number]
    return result


@dataclass(frozen=True)
class BatchTable:
    """What request-level batches of 1, 2, ... jobs of a workload take on a device: seconds, and watts above idle.

    ``drawn``: a batch takes that times the longest of its jobs' draws.
    """

    seconds: FloatArray
    watts: FloatArray
    drawn: bool


def batch_table(program: Sequence[Stage], device: Device, source: Source, size: int) -> BatchTable | None:
    """Batches of up to ``size`` jobs, where their number (and their draws) is all that matters; otherwise None.

    Columns that an operation ``sums`` add up over the jobs, the others stay; operations with nothing to add up run one
    after another, and stated times side by side, as long as the longest.
    """
    stages = [stage for stage in program if isinstance(stage, OpStage)]
    columns = any(isinstance(value, ColumnRef) for stage in stages for value in stage.numbers.values())
    drawn = [s for s in stages if s.op.name == "service" and s.choices["distribution"] != "deterministic"]
    if len(stages) < len(program) or columns or (drawn and len(stages) > 1):
        return None
    counts = np.arange(1, size + 1, dtype=np.float64)
    seconds, joules = np.zeros(size), np.zeros(size)
    for stage in stages:
        numbers = {
            key: counts * value if key in stage.op.sums else np.full(1, value, dtype=np.float64)
            for key, value in stage.numbers.items()
            if not isinstance(value, ColumnRef)
        }
        cost = device.cost(Rows(stage.op, stage.choices, numbers), intervals=False)
        time_s = np.broadcast_to(cost.duration_s, (size,))
        if stage.op.name != "service" and not stage.op.sums:
            time_s = time_s * counts
        seconds = seconds + time_s
        joules = joules + time_s * np.maximum(cost.power_w - device.idle_power_w, 0.0)
    watts = np.divide(joules, seconds, out=np.zeros(size), where=seconds > 0)
    return BatchTable(seconds, np.rint(watts / WATT_GRAIN) * WATT_GRAIN, bool(drawn))


def batch_cost(
    program: Sequence[Stage], device: Device, source: Source, ranks: Sequence[int], compiled: Compiled
) -> tuple[int, float, int]:
    """(ticks, watts above idle, ticks to the first token) of several jobs of a workload that differ, run as one.

    As ``batch_table``; of columns that are not summed the largest value counts.
    """
    if compiled.decoder is not None:
        return _batch_generate(compiled, ranks)
    seconds = joules = 0.0
    idle = device.idle_power_w
    index = np.asarray(ranks)
    for stage in program:
        if not isinstance(stage, OpStage):
            raise UnsupportedOperationError(
                "request-level batching takes programs of plain operations", where=source.where(stage.path)
            )
        numbers: dict[str, FloatArray] = {}
        for key, value in stage.numbers.items():
            column = source.value(value, (*stage.path, key))
            mine = column[index] if len(column) > 1 else np.repeat(column, len(index))
            numbers[key] = np.array([mine.sum() if key in stage.op.sums else mine.max()])
        cost = device.cost(Rows(stage.op, stage.choices, numbers), intervals=False)
        time_s, power_w = float(cost.duration_s[0]), float(cost.power_w[0])
        if stage.op.name == "service":
            time_s *= float(source.variates(stage).values[index].max())
        elif not stage.op.sums:
            time_s *= len(ranks)
        seconds += time_s
        joules += time_s * max(power_w - idle, 0.0)
    return to_ticks(seconds), round_power(joules / seconds) if seconds else 0.0, 0


def _batch_generate(compiled: Compiled, ranks: Sequence[int]) -> tuple[int, float, int]:
    """A static batch: all prompts together, then steps of the whole batch until the longest output is done."""
    costs, prompts, outputs = compiled.decoder, compiled.prompts, compiled.outputs
    assert costs is not None and prompts is not None and outputs is not None  # noqa: S101
    size = len(ranks)
    most = costs.linear.shape[1] - 1
    tokens = int(sum(prompts[r] for r in ranks))
    seconds, joules = (tokens // most) * costs.linear[:, most] + costs.linear[:, tokens % most] + costs.head[:, size]
    for rank in ranks:
        s, j = costs.prompt_attention(0, int(prompts[rank]))
        seconds, joules = seconds + s, joules + j
    first = to_ticks(float(seconds))
    context = float(tokens)
    for _ in range(int(max(outputs[r] for r in ranks)) - 1):
        context += size
        s, j = costs.linear_and_decode(size, context, 0, 0)
        seconds, joules = seconds + s, joules + j
    return to_ticks(float(seconds)), round_power(float(joules / seconds)), first


def is_uniform(program: Sequence[Stage]) -> bool:
    """Whether every job of the program is the same: plain operations with no columns of a trace and no draws."""
    return all(
        isinstance(stage, OpStage)
        and stage.op.name != "service"
        and not any(isinstance(value, ColumnRef) for value in stage.numbers.values())
        for stage in program
    )
