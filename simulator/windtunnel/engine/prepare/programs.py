"""Compiles programs of jobs into segments of time and power on a device, for all jobs of a workload at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from windtunnel.core.device import Device, StrArray
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.executor import Executor
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.ticks import FloatArray, TickArray, to_tick_array
from windtunnel.engine.prepare.decoder_cache import DecoderCostCache
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.lengths import request_lengths
from windtunnel.engine.prepare.source import ServiceTimeDraws, Source
from windtunnel.scenario.program import Branch, ColumnRef, Generate, OpStage, Stage, Streams

WATT_GRAIN = 2.0**-20
"""Powers are rounded to multiples of this (about a microwatt), so that their sums and differences are exact."""


LONGEST_CONTEXT = 4_194_304
"""The largest number of tokens of one sequence for which attention tables are computed."""

MAX_PATHS = 256
"""The largest number of paths through the branches of a program; each is compiled for every job."""

_SATURATED = 1e6
"""A number of requests in flight that saturates every device."""


def round_power(watts: float) -> float:
    """Return ``watts`` rounded to a multiple of WATT_GRAIN."""
    return round(watts / WATT_GRAIN) * WATT_GRAIN


@dataclass(frozen=True)
class Drawn:
    """A random service time: ``seconds`` times the random factor of the job."""

    seconds: float
    variates: ServiceTimeDraws

    def ticks(self) -> TickArray:
        """Return the time of every job, to the nearest tick; shape (jobs,)."""
        return to_tick_array(self.seconds * self.variates.values)


@dataclass(frozen=True)
class Segment:
    """Work on one hardware engine of a device.

    ``ticks`` and ``watts`` (above idle) are one number for all jobs, or an array by the job's rank. The segment takes
    the ``share`` of the engine: an engine that serves n requests together gives each of them 1/n. ``design`` is what
    a reconfigurable device must hold for it ("" for nothing), likewise one for all jobs or by rank.
    """

    engine: str
    name: str
    span: int | TickArray | Drawn
    watts: float | FloatArray
    share: float = 1.0
    rows: Rows | None = None
    """The operation, for real devices; None for a segment of several operations."""
    design: str | StrArray = ""

    @cached_property
    def ticks(self) -> int | TickArray:
        """The duration; random times are drawn at the first use."""
        return self.span.ticks() if isinstance(self.span, Drawn) else self.span

    @property
    def drawn(self) -> Drawn | None:
        """The random service time, if the segment has one."""
        return self.span if isinstance(self.span, Drawn) else None

    def columns(self, rank: int) -> dict[str, float | str]:
        """Return the columns of the operation for the job of this rank."""
        assert self.rows is not None  # noqa: S101  checked by real_devices.check_executable
        numbers = {name: float(v[0] if len(v) == 1 else v[rank]) for name, v in self.rows.numbers.items()}
        return {**numbers, **self.rows.choices}

    def at(self, rank: int) -> tuple[int, float]:
        """Return the ticks and the watts above idle for the job of this rank."""
        ticks = self.ticks if isinstance(self.ticks, int) else int(self.ticks[rank])
        watts = self.watts if isinstance(self.watts, float) else float(self.watts[rank])
        return ticks, watts


class Context(NamedTuple):
    """How an operation is launched, at which clock and from which cache, and why its dispatch is what it is."""

    operation: str
    dispatch: str
    clock: str
    cache: str
    reason: str


Body = tuple[Segment, ...]
Phase = tuple[Body, ...]
"""Bodies that run in parallel; the phases of a job run one after another."""


@dataclass(frozen=True)
class Compiled:
    """The program of one workload on one class of devices. Arrays have the shape (1,) or (jobs,).

    Attributes:
        variants: The paths through the branches of the program.
        variant_of: The path that each job takes; None if there is only one.
        estimate_s: The expected time of a job until its first result (s).
        mean_s: The mean of ``estimate_s``.
        energy_j: The energy of a job, including the idle power of the device (J).
        footprint_bytes: The memory that a job needs.
        sources: Every number of the device model on which the costs depend, by name.
        operations: The names of the operations.
        contexts: The context of each launched operation.
        decoder: The step costs, if the program is a single ``generate``.
        prompts: The prompt tokens of each job, likewise.
        outputs: The output tokens of each job, likewise.
        first_ticks: The time until the first token of a job that is served alone, likewise.
        adapters: The number of the adapter of each job, 0 for none; None if its model has none.
    """

    variants: Sequence[Sequence[Phase]]
    variant_of: np.ndarray | None
    estimate_s: FloatArray
    mean_s: float
    energy_j: FloatArray
    footprint_bytes: FloatArray
    sources: Mapping[str, SourcedValue]
    operations: frozenset[str]
    contexts: frozenset[Context]
    decoder: DecoderCosts | None = None
    prompts: np.ndarray | None = None
    outputs: np.ndarray | None = None
    first_ticks: TickArray | None = None
    adapters: np.ndarray | None = None

    def phases(self, rank: int) -> Sequence[Phase]:
        """Return the phases of the job of this rank."""
        return self.variants[0 if self.variant_of is None else int(self.variant_of[rank])]

    def segments(self) -> Iterator[Segment]:
        """Yield every segment of every path through the program."""
        for phases in self.variants:
            for phase in phases:
                for body in phase:
                    yield from body

    def tokens(self, rank: int) -> int:
        """Return the tokens of prompt and output of the job of this rank; 0 if it does not generate."""
        if self.prompts is None or self.outputs is None:
            return 0
        return int(self.prompts[rank] + self.outputs[rank])

    @property
    def single(self) -> Segment | None:
        """The only segment of the program; None if it has several."""
        if len(self.variants) == 1 and len(self.variants[0]) == 1:
            (phase,) = self.variants[0]
            if len(phase) == 1 and len(phase[0]) == 1:
                return phase[0][0]
        return None


def compile_program(
    program: Sequence[Stage],
    device: Device,
    source: Source,
    decoders: DecoderCostCache,
    executor: Executor | None = None,
) -> Compiled:
    """Return the program of a workload on a device, compiled for all jobs. ``executor``: of a real device.

    Raises:
        UnsupportedOperationError: if the device does not execute an operation.
        InputError: if a value is not valid.
    """
    if len(program) == 1 and isinstance(program[0], Generate):
        return _compile_generate(program[0], source, decoders)
    if decoders.replica.group.devices > 1:
        raise UnsupportedOperationError(
            f"{device.label} is in groups of {decoders.replica.group.devices}, which serve `generate` alone",
            expected="a program of one `generate`, or a fleet entry without group",
        )
    return _Compiler(device, source, decoders, executor).compile(program)


@dataclass
class _Compiler:
    device: Device
    source: Source
    decoders: DecoderCostCache
    executor: Executor | None = None
    sources: dict[str, SourcedValue] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)
    contexts: set[Context] = field(default_factory=set)
    _priced: dict[tuple[str | int, ...], tuple[Segment, FloatArray, FloatArray]] = field(default_factory=dict)

    def compile(self, program: Sequence[Stage]) -> Compiled:
        variants: list[list[Phase]] = []
        estimates: list[FloatArray] = []
        energies: list[FloatArray] = []
        footprints: list[FloatArray] = []
        choice = np.full(self.source.count, -1, dtype=np.int64)
        flats = list(_paths(program))
        if len(flats) > MAX_PATHS:
            raise InputError(
                f"this program has {len(flats):,} paths through its branches",
                where=self.source.where(flats[0][0][0][0].path),
                expected=f"at most {MAX_PATHS}",
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
            contexts=frozenset(self.contexts),
        )

    def _taken(self, conditions: Sequence[tuple[Branch, str | None]]) -> np.ndarray:
        """Return which jobs take the path with these conditions."""
        taken = np.ones(self.source.count, dtype=bool)
        for branch, word in conditions:
            words = self.source.words(branch.column, (*branch.path, "on"))
            if word is not None:
                taken &= np.array([w == word for w in words])
                continue
            taken &= np.array([w not in branch.cases for w in words])
        return taken

    def _no_way(self, program: Sequence[Stage], row: int) -> InputError:
        """Return the error for a job without a path: it names the branch that has no case for the job."""
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
                    f"'{word}' is not a case of this branch",
                    where=trace.place(row, stage.column) if trace is not None else None,
                    expected=f"one of {', '.join(stage.cases)}, or a default",
                )
            stages = [*body, *stages]
        raise AssertionError("every branch has a case for the job, but no path takes it")

    def _body(self, body: Sequence[Stage]) -> tuple[Body, FloatArray, FloatArray, FloatArray]:
        """Return the segments in order, and the expected seconds, joules above idle and bytes of all of them."""
        segments: list[Segment] = []
        seconds, joules, footprint = np.zeros(1), np.zeros(1), np.zeros(1)
        for stage in body:
            if isinstance(stage, Generate):
                inner = _compile_generate(stage, self.source, self.decoders)
                segment = inner.single
                assert segment is not None  # noqa: S101  a request served alone is one segment
                segments.append(segment)
                time_s = np.asarray(segment.ticks) / 1e12
                self.sources.update(inner.sources)
                self.operations |= inner.operations
                self.contexts |= inner.contexts
                footprint = np.maximum(footprint, inner.footprint_bytes)
                seconds, joules = seconds + time_s, joules + time_s * segment.watts
            elif isinstance(stage, OpStage):
                segment, mean_s, stage_bytes = self._operation(stage)
                segments.append(segment)
                footprint = np.maximum(footprint, stage_bytes)
                seconds, joules = seconds + mean_s, joules + mean_s * segment.watts
        return tuple(segments), seconds, joules, footprint

    def _operation(self, stage: OpStage) -> tuple[Segment, FloatArray, FloatArray]:
        """Return the segment, expected seconds and bytes of a stage; the cost of a repeated stage is computed once."""
        if stage.path not in self._priced:
            self._priced[stage.path] = self._price(stage)
        return self._priced[stage.path]

    def _price(self, stage: OpStage) -> tuple[Segment, FloatArray, FloatArray]:
        numbers = {key: self.source.value(value, (*stage.path, key)) for key, value in stage.numbers.items()}
        rows = self._in_context(stage, Rows(stage.op, stage.choices_on(self.device), numbers))
        try:
            cost = self.device.cost(rows, intervals=False)
            engine, designs = self.device.engine_of(rows), self.device.designs_of(rows)
            self.sources.update(self.device.sources(rows))
            self.operations.add(rows.op.name)
            span = self._span(stage, cost.duration_s)
        except InputError as error:
            raise error.at(self.source.where(stage.path)) from None
        watts = np.maximum(np.rint((cost.power_w - self.device.idle_power_w) / WATT_GRAIN), 0.0) * WATT_GRAIN
        seconds = cost.duration_s
        power = float(watts[0]) if len(watts) == 1 or (watts == watts[0]).all() else watts
        share = 1.0 / self._side_by_side(rows, seconds)
        design = str(designs[0]) if (designs == designs[0]).all() else designs
        segment = Segment(engine, stage.op.name, span, power, share, rows, design)
        return segment, seconds, rows.footprint_bytes()

    def _in_context(self, stage: OpStage, rows: Rows) -> Rows:
        """Return the rows with the dispatch that the device's executor measures, and note the context.

        A dispatch that the scenario states is not changed: if the executor refuses it, the job is refused.
        """
        if not stage.op.launched:
            return rows
        reason = "the scenario states it"
        if "dispatch" not in stage.choices:
            reason = self.device.api.no_launch or "a program launches one operation after another"
            if self.executor is not None and rows.choices["dispatch"] != "device":
                refusal = self.executor.refusal(stage.op.name, Segment("", stage.op.name, 0, 0.0, rows=rows).columns(0))
                if refusal is not None:
                    reason = refusal
                    rows = replace(rows, choices={**rows.choices, "dispatch": "device"})
        chosen = rows.choices
        self.contexts.add(Context(stage.op.name, chosen["dispatch"], chosen["clock"], chosen["cache"], reason))
        return rows

    def _span(self, stage: OpStage, seconds: FloatArray) -> int | TickArray | Drawn:
        """Return the duration of each job, or one for all; random service times remain to be drawn."""
        drawn = stage.op.name == "service" and (stage.choices["distribution"] != "deterministic" or len(seconds) > 1)
        if not drawn:
            return _one_or_all(to_tick_array(seconds))
        variates = self.source.variates(stage)
        return Drawn(float(seconds[0]), variates) if len(seconds) == 1 else to_tick_array(seconds * variates.values)

    def _side_by_side(self, rows: Rows, alone_s: FloatArray) -> int:
        """Return how many single requests a hardware engine serves together before it is saturated.

        By Little's law it is the time of one request alone over the time for each of very many in flight.
        """
        if "in_flight" not in rows.numbers or (rows.numbers["in_flight"] > 1).any():
            return 1
        saturated = Rows(rows.op, rows.choices, {**rows.numbers, "in_flight": np.full(1, _SATURATED)})
        each_s = self.device.cost(saturated, intervals=False).duration_s
        return max(1, int(np.min(alone_s / each_s) + 1e-9))


def _compile_generate(stage: Generate, source: Source, decoders: DecoderCostCache) -> Compiled:
    lengths = request_lengths(stage, source)
    prompts, outputs = lengths.prompts.astype(np.float64), lengths.outputs.astype(np.float64)
    longest = float((prompts + outputs).max())
    if longest > LONGEST_CONTEXT:
        raise InputError(
            f"a job has {longest:,.0f} tokens",
            where=source.where(stage.path),
            expected=f"at most {LONGEST_CONTEXT:,} of prompt and output together, such as by `max` of a distribution",
        )
    try:
        costs = decoders[stage.model]
    except InputError as error:
        raise error.at(source.where(stage.path)) from None
    first_s, whole_s, _, whole_j = costs.alone(prompts, outputs)
    footprint = costs.request_bytes(prompts + outputs)
    ticks = to_tick_array(whole_s)
    watts = np.rint(whole_j / np.maximum(whole_s, 1e-12) / WATT_GRAIN) * WATT_GRAIN
    return Compiled(
        variants=[[((Segment("compute", "generate", ticks, watts),),)]],
        variant_of=None,
        estimate_s=first_s,
        mean_s=float(first_s.mean()),
        energy_j=whole_j + whole_s * costs.idle_power_w,
        footprint_bytes=footprint,
        sources=costs.sources,
        operations=costs.operations,
        contexts=frozenset({Context("generate", costs.served.dispatch, costs.served.clock, "cold", "of its model")}),
        decoder=costs,
        prompts=lengths.prompts,
        outputs=lengths.outputs,
        first_ticks=to_tick_array(first_s),
    )


def longest_contexts(program: Sequence[Stage], source: Source) -> Iterator[tuple[str, int]]:
    """Yield each model that a program uses, and its longest context over all jobs (tokens)."""
    for stage in program:
        if isinstance(stage, Generate):
            lengths = request_lengths(stage, source)
            yield stage.model, int((lengths.prompts + lengths.outputs).max())
        elif isinstance(stage, Branch):
            for body in [*stage.cases.values(), stage.default or ()]:
                yield from longest_contexts(body, source)


def _paths(program: Sequence[Stage]) -> Iterator[tuple[list[tuple[Branch, str | None]], list[Stage]]]:
    """Yield every path through the branches of a program: its conditions and its stages."""
    for i, stage in enumerate(program):
        if isinstance(stage, Branch):
            before, after = list(program[:i]), list(program[i + 1 :])
            cases: list[tuple[str | None, Sequence[Stage]]] = [*stage.cases.items()]
            if stage.default is not None:
                cases.append((None, stage.default))
            for word, body in cases:
                for conditions, stages in _paths([*body, *after]):
                    yield [(stage, word), *conditions], [*before, *stages]
            return
    yield [], list(program)


def _joined(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases with consecutive phases of one body merged, which does not change times."""
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


def is_uniform(program: Sequence[Stage]) -> bool:
    """Return whether all jobs are identical: operations without columns of a trace and without random times."""
    return all(
        isinstance(stage, OpStage)
        and stage.op.name != "service"
        and not any(isinstance(value, ColumnRef) for value in stage.numbers.values())
        for stage in program
    )
