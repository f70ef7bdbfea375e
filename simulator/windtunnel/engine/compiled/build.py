"""Represents a prepared scenario as the arrays that the kernel works on."""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit, typeof, types

from windtunnel.core.policy import Candidate, JobKey, OwnFunction
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND
from windtunnel.engine.compiled import state
from windtunnel.engine.compiled.kernel import advance
from windtunnel.engine.compiled.state import (
    BATCHES,
    BINS,
    HOUR_TICKS,
    HOURS,
    SAMPLE,
    SPANS,
    STRETCHES,
    Records,
    World,
    records,
)
from windtunnel.engine.compiled.structures import ROOT, tree_build, tree_size
from windtunnel.engine.prepare.jobs import draw_columns, draws
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.prepare.programs import Segment, ServiceTimeDraws
from windtunnel.scenario.faults import Straggler

_CANDIDATE = types.NamedTuple((types.int64, *(types.float64,) * 6, types.int64, types.float64), Candidate)
_JOB_KEY = types.NamedTuple((types.int64, types.int64, types.int64, types.float64), JobKey)
SCORE = types.UniTuple(types.float64, 2)(_CANDIDATE)
KEY = types.float64(_JOB_KEY)


@cache
def kernel() -> Callable[..., int]:
    """Return the kernel, compiled once for all policies. Its machine code is cached beside the source."""
    signature = types.int64(typeof(_empty()), types.FunctionType(SCORE), types.FunctionType(KEY))
    compiled: Callable[..., int] = njit(signature, cache=True, _nrt=False, error_model="numpy")(advance)
    return compiled


@cache
def compiled_score(score: Callable[..., tuple[float, float]] | None) -> Callable[..., tuple[float, float]]:
    """Return a route's score for the kernel; raises Numba's error for a function that does not compile."""
    if not isinstance(score, OwnFunction):
        return njit(SCORE)(score or _no_score)
    compiled, message = njit(score.function), _not_a_number(score)
    if score.numbers == 1:

        def single(device: Candidate) -> tuple[float, float]:
            first = float(compiled(device))
            if first != first:  # noqa: PLR0124  NaN
                raise ValueError(message)
            return first, 0.0

        return njit(SCORE)(single)

    def pair(device: Candidate) -> tuple[float, float]:
        first, second = compiled(device)
        if first != first or second != second:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return float(first), float(second)

    return njit(SCORE)(pair)


@cache
def compiled_key(key: Callable[..., float] | None) -> Callable[..., float]:
    """Return an order's key for the kernel; raises Numba's error for a function that does not compile."""
    if not isinstance(key, OwnFunction):
        return njit(KEY)(key or _no_key)
    compiled, message = njit(key.function), _not_a_number(key)

    def number(job: JobKey) -> float:
        value = float(compiled(job))
        if value != value:  # noqa: PLR0124  NaN
            raise ValueError(message)
        return value

    return njit(KEY)(number)


def _not_a_number(own: OwnFunction) -> str:
    return f"'{own.text}' returned NaN"


FAR_ABOVE = 4096
"""The number of devices above which the fleet is assumed not to fit into the cache."""


def _no_score(device: Candidate) -> tuple[float, float]:
    return 0.0, 0.0


def _no_key(job: JobKey) -> float:
    return 0.0


def _empty() -> World:
    """Return a world without devices, from which Numba derives the kernel's types."""
    return World(
        run=records(1, state.RUN),
        devices=records(0, state.DEVICE),
        slots=records(0, state.SLOT),
        draws=np.ones((0, 1)),
        ends=records(0, state.ENTRY),
        timers=records(0, state.ENTRY),
        tree=records(0, state.NODE),
        classes=records(0, state.CLASS),
        programs=records(0, state.PROGRAM),
        ways=records(0, state.WAY),
        segments=records(0, state.SEGMENT),
        workloads=records(0, state.WORKLOAD),
        ints=np.zeros(0, dtype=np.int64),
        numbers=np.zeros(0),
        queues=records(0, state.QUEUE),
        faults=records(0, state.FAULT),
        line=np.zeros(0, dtype=np.int64),
        arrivals=records(0, state.ARRIVAL),
        arrival_draws=np.ones((0, 1)),
        intervals=records(0, state.INTERVAL),
        jobs=records(0, state.JOB),
        batches=records(0, state.BATCH_OF_JOBS),
        bins=np.zeros((2, 0, 0), dtype=np.int32),
        counts=np.zeros((0, 4), dtype=np.int64),
        spans=records(0, state.SPAN),
        hours=np.zeros(HOURS),
    )


class Pool:
    """Concatenates arrays, and returns the offset of each."""

    def __init__(self, dtype: type) -> None:
        self._dtype = dtype
        self._parts: list[np.ndarray] = []
        self._at: dict[int, int] = {}
        self._size = 0

    def add(self, values: np.ndarray) -> int:
        """Return the offset of ``values``; an array that is already present is not added again."""
        if id(values) not in self._at:
            self._at[id(values)] = self._size
            self._parts.append(values)
            self._size += len(values)
        return self._at[id(values)]

    def array(self) -> np.ndarray:
        """Return the concatenation of all arrays that were added."""
        if not self._parts:
            return np.zeros(1, dtype=self._dtype)
        return np.concatenate(self._parts).astype(self._dtype, copy=False)


@dataclass
class Words:
    """Numbers for the names of lanes and segments in the recording's intervals."""

    numbers: dict[str, int]

    def __call__(self, text: str) -> int:
        """Return the number that stands for ``text``."""
        return self.numbers.setdefault(text, len(self.numbers))


def build(prepared: PreparedRun, words: Words, *, slots: int) -> World:
    """Return the world at tick 0, without jobs and without a block of arrivals."""
    batching = prepared.policy.batch.kind == "request"
    devices = prepared.device_count
    ints, numbers = Pool(np.int64), Pool(np.float64)
    programs, ways, segments, workloads = _programs(prepared, words, ints, numbers)
    class_rows, tree = trees(prepared, state.CLASS)
    for row, fleet_class in zip(class_rows, prepared.classes, strict=True):
        row.memory = fleet_class.device.memory_bytes
    queue_at, queues_of, queues = queues_by_class(prepared, batching)
    run = run_record(prepared, ints, queue_at, queues_of)
    r = run[0]
    r.draws = draw_columns(prepared)
    r.careful = batching or prepared.budget_w is not None or prepared.interrupts
    r.far = devices > FAR_ABOVE and prepared.policy.batch.kind == "none"
    r.stretched = any(isinstance(fault, Straggler) for fault in prepared.scenario.faults)
    r.write = prepared.writes_intervals and not prepared.streamed
    series = 0
    if prepared.streamed:
        series = 1 if len(prepared.workloads) == 1 else 1 + len(prepared.workloads)
        r.tallying, r.batch_width = 1, max(1, -(-prepared.job_count // BATCHES))
        r.stride = max(1, -(-prepared.job_count // SAMPLE)) if prepared.sampled else 0
        r.span_width = r.span_until = max(1, prepared.expected_ticks // SPANS)
        r.spans_end = min(int(r.span_width) * SPANS, MAX_TICKS)
        begins = (0 if prepared.scenario.site is None else prepared.scenario.site.start_time_s) * TICKS_PER_SECOND
        r.hour, r.hour_until = begins // HOUR_TICKS % HOURS, HOUR_TICKS - begins % HOUR_TICKS
    else:
        r.stride = 1
    rows = records(devices, state.DEVICE)
    rows.slot, rows.up, rows.linked, rows.rate = -1, 1, 1, 1.0
    rows.turn = np.arange(devices)
    rows.cls = prepared.class_of_device()
    slot_rows = records(slots, state.SLOT)
    slot_rows.next = np.append(np.arange(1, slots), -1)
    queue_rows = records(queues, state.QUEUE)
    queue_rows.head = queue_rows.tail = -1
    kept = -(-prepared.job_count // r.stride) + int(prepared.streamed) if r.stride else 0
    jobs = blank_rows(kept)
    return World(
        run=run,
        devices=rows,
        slots=slot_rows,
        draws=np.ones((slots, r.draws + r.stretched)),
        ends=records(ROOT + devices + 2, state.ENTRY),
        timers=records(ROOT + 2 * queues + 1024 if batching else 1, state.ENTRY),
        tree=tree,
        classes=class_rows,
        programs=programs,
        ways=ways,
        segments=segments,
        workloads=workloads,
        ints=ints.array(),
        numbers=numbers.array(),
        queues=queue_rows,
        faults=records(0, state.FAULT),
        line=np.zeros(devices, dtype=np.int64),
        arrivals=records(0, state.ARRIVAL),
        arrival_draws=np.ones((0, r.draws)),
        intervals=records(4 * devices + 65_536 if r.write else 1, state.INTERVAL),
        jobs=jobs,
        batches=records(series * BATCHES, state.BATCH_OF_JOBS),
        bins=np.zeros((2, series * STRETCHES, BINS if series else 0), dtype=np.int32),
        counts=np.zeros((len(prepared.workloads) if series else 0, 4), dtype=np.int64),
        spans=records(SPANS if series else 0, state.SPAN),
        hours=np.zeros(HOURS),
    )


def blank_rows(count: int) -> Records:
    """Return rows for the times of ``count`` jobs whose times are not known yet."""
    rows = records(count, state.JOB)
    rows.start = rows.finish = rows.on = -1
    return rows


def run_record(prepared: PreparedRun, ints: Pool, queue_at: np.ndarray, queues_of: np.ndarray) -> Records:
    """Return the run's record at tick 0."""
    policy, classes = prepared.policy, prepared.classes
    run = records(1, state.RUN)
    r = run[0]
    r.limbo = r.limbo_end = r.placing = r.placing_end = r.feeding = r.sweeping = r.tried = -1
    r.end = min(prepared.end, MAX_TICKS - 1) if prepared.end is not None else MAX_TICKS - 1
    r.faults_until = MAX_TICKS if prepared.faults is None else 0
    r.gone = (
        MAX_TICKS if prepared.faults is None else prepared.faults.gone(prepared.device_count).min(initial=MAX_TICKS)
    )
    r.turn = prepared.device_count
    r.routed = policy.route.score is not None
    r.by = {"jobs": state.BY_PRESENT, "backlog": state.BY_BACKLOG, "last_chosen": state.BY_TURN}[policy.route.rank_by]
    r.looks = policy.route.rank_by != "jobs" or policy.route.score is None or _reads(policy.route.score, "backlog_s")
    r.keyed = policy.order.key is not None
    r.batch = state.REQUEST if policy.batch.kind == "request" else state.NO_BATCH
    r.batch_size, r.batch_wait, r.batch_tokens = policy.batch.size, prepared.batch_wait_ticks, policy.batch.tokens
    r.gated = prepared.budget_w is not None
    r.cap_w = prepared.budget_w if prepared.budget_w is not None else 0.0
    r.drawn_w = r.idle_w = prepared.idle_w
    r.workloads, r.devices, r.classes = len(prepared.workloads), prepared.device_count, len(classes)
    r.signature_at = ints.add(np.cumsum([0, *(len(s) for s in prepared.signatures)]))
    # In the order of the fleet, in which a central queue searches for an idle device.
    r.signature_classes = ints.add(np.array([c for s in prepared.signatures for c in sorted(s)], dtype=np.int64))
    r.queue_at, r.queues_of = ints.add(queue_at), ints.add(queues_of)
    r.all_classes = ints.add(np.arange(len(classes)))
    return run


def _programs(
    prepared: PreparedRun, words: Words, ints: Pool, numbers: Pool
) -> tuple[Records, Records, Records, Records]:
    """Return programs, variants of programs, segments and workloads."""
    works = len(prepared.workloads)
    programs = records(len(prepared.classes) * works, state.PROGRAM)
    ways: list[tuple[int, int]] = []
    segments: list[tuple[float, ...]] = []
    columns = draws(prepared)
    rows = records(works, state.WORKLOAD)
    for number, job_class in enumerate(prepared.workloads):
        rows[number].deadline = job_class.deadline_ticks
        rows[number].priority = job_class.workload.priority
        rows[number].way_at = -1
    for (cls, work), compiled in prepared.compiled.items():
        p = programs[cls * works + work]
        p.ways = len(ways)
        for variant in compiled.variants:
            first = len(segments)
            for phase in variant:
                segments += [_segment(s, columns.get(work, []), ints, numbers, words) for s in phase[0]]
            ways.append((first, len(segments) - 1))
        if compiled.variant_of is not None:
            rows[work].way_at = ints.add(compiled.variant_of)
        estimates(prepared, cls, work, p, numbers)
        p.footprint_at, p.footprint = _one_or_all(compiled.footprint_bytes, numbers)
        p.weights = compiled.decoder.weight_bytes if compiled.decoder is not None else 0.0
        p.own = prepared.is_own_interval(compiled)
        p.batch_at = -1
        if prepared.policy.batch.kind == "request":
            table = prepared.batches(cls, work)
            assert table is not None  # noqa: S101  other arrivals are unsupported
            p.batch_at = numbers.add(np.concatenate([table.seconds, table.watts]))
            p.batch_drawn = table.drawn
    return (
        programs,
        np.array(ways or [(0, 0)], dtype=state.WAY).view(np.recarray),
        np.array(segments, dtype=state.SEGMENT).view(np.recarray),
        rows,
    )


def estimates(prepared: PreparedRun, cls: int, work: int, program: Records, numbers: Pool) -> None:
    """Write the estimates that a route reads for the workload on the class."""
    compiled = prepared.compiled[cls, work]
    program.estimate_at, program.estimate = _one_or_all(compiled.estimate_s, numbers)
    program.energy_at, program.energy = _one_or_all(compiled.energy_j, numbers)
    program.mean = compiled.mean_s
    program.price = prepared.classes[cls].price_usd_per_s or 0.0
    program.preference = prepared.preference[cls, work]


def trees(prepared: PreparedRun, layout: np.dtype) -> tuple[Records, Records]:
    """Return the classes, and the trees of their devices."""
    rows = records(len(prepared.classes), layout)
    size = 0
    ends: list[int] = []
    for row, fleet_class in zip(rows, prepared.classes, strict=True):
        node_count, leaf = tree_size(fleet_class.count)
        row.first, row.count = fleet_class.first, fleet_class.count
        row.tree, row.leaf = size + ROOT, size + leaf
        size += node_count
        ends.append(size)
    tree = records(size, state.NODE)
    for row, end in zip(rows, ends, strict=True):
        if prepared.policy.route.score is not None and prepared.policy.route.rank_by == "last_chosen":
            tree.load[row.leaf : row.leaf + row.count] = np.arange(row.first, row.first + row.count)
        tree_build(tree, row.tree, row.leaf, end, row.first, row.count)
    return rows, tree


def _reads(score: Callable[..., Any], name: str) -> bool:
    """Return whether a score may read a field of its candidate, or uses the candidate itself other than by a field."""
    code = (score.function if isinstance(score, OwnFunction) else score).__code__
    steps = list(dis.get_instructions(code))
    candidate = code.co_varnames[0]
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        named = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if candidate in named and step.opname.startswith("LOAD") and following.opname != "LOAD_ATTR":
            return True
    return name in code.co_names or bool(code.co_cellvars)


def _one_or_all(values: np.ndarray, pool: Pool) -> tuple[int, float]:
    """Return the offset of the first job's value, or -1 if all jobs have one value, and that value."""
    return (-1, float(values[0])) if values.size == 1 else (pool.add(values), 0.0)


def _segment(
    segment: Segment, draws: list[ServiceTimeDraws], ticks: Pool, numbers: Pool, words: Words
) -> tuple[float, ...]:
    watts_at, watts = (-1, segment.watts) if isinstance(segment.watts, float) else (numbers.add(segment.watts), 0.0)
    lane, name = words(segment.engine), words(segment.name)
    if segment.drawn is not None:
        column = next(i for i, known in enumerate(draws) if known is segment.drawn.variates)
        return (state.DRAWN, 0, 0, column, watts_at, lane, name, segment.drawn.seconds, watts)
    if isinstance(segment.ticks, int):
        return (state.CONSTANT, segment.ticks, 0, 0, watts_at, lane, name, 0.0, watts)
    return (state.BY_JOB, 0, ticks.add(segment.ticks), 0, watts_at, lane, name, 0.0, watts)


def queues_by_class(prepared: PreparedRun, batching: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Return which central queues each class serves, and the number of queues."""
    works = len(prepared.workloads) if batching else 1
    if prepared.policy.route.score is not None:
        empty = np.zeros(len(prepared.classes) + 1, dtype=np.int64)
        return empty, np.zeros(1, dtype=np.int64), prepared.device_count * works
    of: list[list[int]] = [[] for _ in prepared.classes]
    for number, signature in enumerate(prepared.signatures):
        for cls in signature:
            of[cls] += range(number * works, (number + 1) * works)
    at = np.cumsum([0, *(len(queues) for queues in of)]).astype(np.int64)
    flat = np.array([queue for queues in of for queue in queues] or [0], dtype=np.int64)
    return at, flat, len(prepared.signatures) * works
