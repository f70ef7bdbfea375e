"""Represents a prepared run as the tables that the transitions work on."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from windtunnel.core.policy import Index, OwnFunction
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, to_ticks
from windtunnel.engine.prepare.autoscaling import OFF, ON
from windtunnel.engine.prepare.designs import design_numbers, resident_rows
from windtunnel.engine.prepare.jobs import draw_columns, draws
from windtunnel.engine.prepare.prepared import PreparedRun, kind_of_station
from windtunnel.engine.prepare.programs import Segment, round_power
from windtunnel.engine.prepare.source import ServiceTimeDraws
from windtunnel.engine.prepare.waits import has_waits, patience_s
from windtunnel.engine.transitions import tables
from windtunnel.engine.transitions.containers import NOT_HERE, fill_index, fill_tree, index_size, tree_size
from windtunnel.engine.transitions.fault_tables import faults_of, operation_fault_rows, rules_of
from windtunnel.engine.transitions.flow_tables import write_flows, write_limits
from windtunnel.engine.transitions.handover_tables import ports, write_decoders, write_role
from windtunnel.engine.transitions.heap import ROOT
from windtunnel.engine.transitions.prefix_tables import index_of, write_prefixes
from windtunnel.engine.transitions.step_tables import (
    step_counts,
    write_acceptance,
    write_adapters,
    write_engine,
    write_step_costs,
)
from windtunnel.engine.transitions.tables import (
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
    unwritten_records,
)
from windtunnel.engine.transitions.user_tables import submissions, think_ticks, user_rows, write_draws
from windtunnel.engine.transitions.work import SERVER_WORDS
from windtunnel.scenario.faults import OperationFault, Straggler

FAR_ABOVE = 4096
"""The number of devices above which the fleet is assumed not to fit into the cache."""
ROWS, SLOTS = 65_536, 1024
"""The initial number of rows of tables that grow with the run, and of slots for the jobs present.

Memory that is never written is never allocated by the system, so arrays are large enough for most runs.
"""


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

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        """Return the number that stands for ``text``."""
        return self.numbers.setdefault(text, len(self.numbers))


# Long: it states each table once.
def build(prepared: PreparedRun, words: Words, rows: int | None = None, slots: int | None = None) -> World:
    """Return the tables at tick 0, without jobs and without a block of arrivals.

    ``rows`` and ``slots`` replace ``ROWS`` and ``SLOTS``.
    """
    rows, slots = rows or ROWS, slots or SLOTS
    policy = prepared.policy
    batching, serving = policy.batch.kind == "request", policy.batch.kind == "continuous"
    streaming = any(kind_of_station(prepared, c) == "stream" for c in prepared.classes)
    for word in SERVER_WORDS if serving else ("compute",) if batching else ("board", "active") if streaming else ():
        words(word)
    devices, works = prepared.device_count, len(prepared.workloads)
    ints, numbers = Pool(np.int64), Pool(np.float64)
    designs = design_numbers(prepared)
    programs, ways, segments, workloads = _programs(prepared, words, ints, numbers, designs)
    operation_faults = operation_fault_rows(prepared, ints.add)
    class_rows, tree, idle = _classes(prepared, numbers)
    lines = works if batching else 1 if prepared.flows is None else len(prepared.flows.flows)
    queue_at, queues_of, queues = _queues_by_class(prepared, lines)
    run = _run_record(prepared, ints, queue_at, queues_of)
    r = run[0]
    r.lines = lines
    flows, shares = write_flows(prepared, ints.add, workloads)
    nodes, caches = write_prefixes(prepared, ints.add, r, workloads)
    accepted = write_acceptance(prepared, workloads, ints.add, numbers.add)
    # The words of the designs follow each other, because no other word begins like them.
    load_words = [words(f"load design {name}") for name in designs]
    r.load_word = min(load_words, default=0)
    series = 0
    if prepared.streamed:
        series = 1 if works == 1 else 1 + works
        _set_up_tallies(prepared, r)
    kept = -(-prepared.job_count // r.stride) + int(prepared.streamed) if r.stride else 0
    slot_rows = records(slots, tables.SLOT)
    slot_rows.next = np.append(np.arange(1, slots), -1)
    queue_rows = records(queues, tables.QUEUE)
    queue_rows.head = queue_rows.tail = -1
    return World(
        run=run,
        devices=_devices(prepared),
        extras=_extras(prepared),
        gangs=_gangs(devices if prepared.ganging else 0),
        servers=_servers(devices if serving else 0),
        **_streams(prepared, r, slots if streaming else 0),
        slots=slot_rows,
        sequences=records(slots if serving else 0, tables.SEQUENCE),
        nodes=nodes,
        node_index=index_of(len(nodes)),
        caches=caches,
        loads=records(slots if r.levels > 1 else 0, tables.LOAD),
        ports=ports(prepared),
        handovers=records(slots if r.disaggregated else 0, tables.HANDOVER),
        transfers=records(rows if r.disaggregated else 1, tables.TRANSFER),
        waits=records(slots if r.waits else 0, tables.WAIT),
        rules=rules_of(prepared),
        progress=records(slots if r.progresses else 0, tables.PROGRESS_OF_JOB),
        checkpoints=_checkpoints(prepared),
        overhead=records(1, tables.OVERHEAD),
        resident=resident_rows(prepared, designs),
        draws=np.ones((slots, r.draws + r.stretched)),
        ends=records(ROOT + devices + 2, tables.ENTRY),
        timers=records(ROOT + 2 * queues + 1024 if batching or r.waits or r.disaggregated else 64, tables.ENTRY),
        tree=tree,
        idle=idle,
        classes=class_rows,
        programs=programs,
        ways=ways,
        segments=segments,
        workloads=workloads,
        queues=queue_rows,
        decoding_of=np.zeros((devices if serving else 0, works + len(flows)), dtype=np.int64),
        adapters=write_adapters(prepared, r, class_rows, workloads, ints.add),
        accepted=accepted,
        buckets=write_limits(prepared, ints.add, workloads),
        step_counts=step_counts(class_rows),
        flows=flows,
        shares=shares,
        faults=records(0, tables.FAULT),
        operation_faults=operation_faults,
        line=np.zeros(devices, dtype=np.int64),
        arrivals=records(0, tables.ARRIVAL),
        arrival_draws=np.ones((0, r.draws)),
        intervals=unwritten_records(4 * devices + rows if r.write else 1, tables.INTERVAL),
        jobs=blank_jobs(kept),
        gaps=unwritten_records(4 * works + rows if serving else 1, tables.GAP),
        users=user_rows(prepared, workloads),
        user_of=np.full(slots if prepared.users else 0, -1, dtype=np.int64),
        submits=submissions(prepared, r),
        think_ticks=think_ticks(prepared, 2),
        changes=records(4 * devices + 1024 if prepared.scaled else 1, tables.CHANGE),
        batches=records(series * BATCHES, tables.BATCH_OF_JOBS),
        bins=np.zeros((2, series * STRETCHES, BINS if series else 0), dtype=np.int32),
        counts=np.zeros((works if series else 0, 5), dtype=np.int64),
        spans=records(SPANS if series else 0, tables.SPAN),
        hours=np.zeros(HOURS),
        # All arrays are in the pools.
        ints=ints.array(),
        numbers=numbers.array(),
    )


def own_intervals(prepared: PreparedRun) -> set[tuple[int, int]]:
    """Return the programs (class, workload) whose jobs are one segment, so that their times are the interval's."""
    kinds = {c.number: kind_of_station(prepared, c) for c in prepared.classes}
    return {
        key
        for key, program in prepared.compiled.items()
        if prepared.is_own_interval(program) and kinds[key[0]] == "single" and prepared.workloads[key[1]].gang == 1
    }


def _streams(prepared: PreparedRun, r: Records, slots: int) -> dict[str, Any]:
    """Return the tables that only devices with streams need."""
    count = prepared.device_count if slots else 0
    rows = records(count, tables.STATION)
    for name in ("oldest", "newest", "running", "running_end", "undelivered", "timed_end"):
        rows[name] = -1
    most = bodies = 0
    for c in prepared.classes if slots else ():
        members = slice(c.first, c.first + c.count)
        rows.streams[members], rows.memory[members] = c.streams, c.memory_bytes
        rows.active_w[members] = c.active_w
        rows.headroom_w[members] = max(round_power(c.limit_w) - c.idle_w - c.active_w, 0.0)
        programs = [compiled for (cls, _), compiled in prepared.compiled.items() if cls == c.number]
        side_by_side = max((len(phase) for p in programs for variant in p.variants for phase in variant), default=1)
        most, bodies = max(most, c.streams * side_by_side), bodies + c.streams * side_by_side * c.count
    tasks = records(min(bodies, max(prepared.job_count, 1) * max(most, 1)), tables.TASK)
    if len(tasks):
        tasks.next = np.append(np.arange(1, len(tasks)), -1)
    engines = records(count * int(r.engines), tables.ENGINE)
    engines.waiting = -1
    return {
        "stations": rows,
        "engines": engines,
        "lanes": np.zeros((len(engines), most + 1), dtype=np.int8),
        "tasks": tasks,
        "stream_jobs": records(slots, tables.STREAM_JOB),
    }


def blank_jobs(count: int) -> Records:
    """Return rows for the times of ``count`` jobs whose times are not known yet."""
    return records(count, tables.JOB, start=-1, finish=-1, on=-1, first=-1)


def _devices(prepared: PreparedRun) -> Records:
    rows = records(prepared.device_count, tables.DEVICE)
    rows.slot, rows.linked, rows.rate, rows.enlisted, rows.first_left = -1, 1, 1.0, 1, -1
    rows.turn = np.arange(prepared.device_count)
    rows.cls = prepared.class_of_device()
    for fleet_class, _ in prepared.scaled:
        rows.enlisted[fleet_class.first + fleet_class.begin : fleet_class.first + fleet_class.count] = 0
    return rows


def _extras(prepared: PreparedRun) -> Records:
    rows = records(prepared.device_count, tables.EXTRA)
    rows.ending, rows.state = -1, ON
    for fleet_class, _ in prepared.scaled:
        rows.state[fleet_class.first + fleet_class.begin : fleet_class.first + fleet_class.count] = OFF
    return rows


def _gangs(count: int) -> Records:
    rows = records(count, tables.GANG)
    rows.leader = rows.following = -1
    rows.victim = tables.NOT_CHOSEN
    return rows


def _servers(count: int) -> Records:
    rows = records(count, tables.SERVER)
    lists = "reading reading_end off decoding decoding_end ending ending_end undelivered loading loading_end"
    for name in lists.split():
        rows[name] = -1
    return rows


def _checkpoints(prepared: PreparedRun) -> Records:
    """Return the checkpoints of each workload."""
    rows = records(len(prepared.workloads), tables.CHECKPOINT)
    for row, job_class in zip(rows, prepared.workloads, strict=True):
        stated = job_class.workload.checkpoint
        if stated is not None:
            row.every, row.cost, row.restore = map(to_ticks, (stated.every, stated.cost, stated.restore))
            row.every = max(row.every, 1)
    return rows


# Long: it states each field once.
def _run_record(prepared: PreparedRun, ints: Pool, queue_at: np.ndarray, queues_of: np.ndarray) -> Records:
    """Return the run's record at tick 0."""
    policy, classes, faults = prepared.policy, prepared.classes, prepared.scenario.faults
    serving, batching = policy.batch.kind == "continuous", policy.batch.kind == "request"
    run = records(1, tables.RUN)
    r = run[0]
    r.handing = r.handing_end = r.stranded = r.stranded_end = r.freed = -1
    r.unassigned = r.unassigned_end = r.placing = r.placing_end = r.feeding = r.sweeping = r.tried = -1
    r.end = min(prepared.end, MAX_TICKS - 1) if prepared.end is not None else MAX_TICKS - 1
    r.faults_until = MAX_TICKS if prepared.faults is None else 0
    r.gone = (
        MAX_TICKS if prepared.faults is None else prepared.faults.gone(prepared.device_count).min(initial=MAX_TICKS)
    )
    r.turn = prepared.device_count
    r.routed = policy.route.score is not None
    r.by = get_args(Index).index(policy.route.rank_by)
    r.looks = policy.route.rank_by != "jobs" or policy.route.score is None or _reads(policy.route.score, "backlog_s")
    r.keyed = policy.order.key is not None
    r.batch = tables.REQUEST if batching else tables.NO_BATCH
    r.serving = serving
    r.batch_size, r.batch_wait = _largest_batch(prepared), prepared.batch_wait_ticks
    r.gated = prepared.budget_w is not None
    r.cap_w = prepared.budget_w if prepared.budget_w is not None else 0.0
    r.drawn_w = r.idle_w = prepared.idle_w
    r.scaling = bool(prepared.scaled)
    r.continues = r.scaling and prepared.end is not None
    r.workloads, r.devices, r.classes = len(prepared.workloads), prepared.device_count, len(classes)
    r.draws = draw_columns(prepared)
    operation_faults = any(isinstance(fault, OperationFault) for fault in faults)
    r.users, r.limit = bool(prepared.users), MAX_TICKS if prepared.limit is None else prepared.limit
    # Devices that drain return their jobs to queues.
    r.tokens = not serving and any(c.first_ticks is not None for c in prepared.compiled.values())
    r.careful = serving or batching or r.gated or prepared.interrupts or operation_faults or r.scaling or r.tokens
    r.waits = has_waits(prepared)
    r.progresses = prepared.progresses
    r.preempting = {"none": tables.NOT_PREEMPTED, "resume": tables.RESUMED, "restart": tables.RESTARTED}[
        "none" if prepared.outranks else policy.preemption
    ]
    r.fair, r.outranks = prepared.flows is not None, prepared.outranks
    r.ganging, r.backfill = prepared.ganging, policy.backfill
    r.reconfigures = prepared.reconfigures
    r.careful = r.careful or r.ganging or r.reconfigures
    r.far = prepared.device_count > FAR_ABOVE and policy.batch.kind == "none"
    r.stretched = any(isinstance(fault, Straggler) for fault in faults)
    r.write = len(own_intervals(prepared)) < len(prepared.compiled) and not prepared.streamed
    names = {segment.engine for compiled in prepared.compiled.values() for segment in compiled.segments()}
    r.engines = len(names)
    r.stride = 1
    r.signature_at = ints.add(np.cumsum([0, *(len(s) for s in prepared.signatures)]))
    # In the order of the fleet, in which a central queue searches for an idle device.
    r.signature_classes = ints.add(np.array([c for s in prepared.signatures for c in sorted(s)], dtype=np.int64))
    r.queue_at, r.queues_of = ints.add(queue_at), ints.add(queues_of)
    r.all_classes = ints.add(np.arange(len(classes)))
    write_decoders(prepared, ints.add, r)
    return run


def _set_up_tallies(prepared: PreparedRun, r: Records) -> None:
    """Prepare the sums of a run that is too long to keep every job."""
    r.tallying, r.batch_width = 1, max(1, -(-prepared.job_count // BATCHES))
    r.stride = max(1, -(-prepared.job_count // SAMPLE)) if prepared.sampled else 0
    r.span_width = r.span_until = max(1, prepared.expected_ticks // SPANS)
    r.spans_end = min(int(r.span_width) * SPANS, MAX_TICKS)
    begins = (0 if prepared.scenario.site is None else prepared.scenario.site.start_time_s) * TICKS_PER_SECOND
    r.hour, r.hour_until = begins // HOUR_TICKS % HOURS, HOUR_TICKS - begins % HOUR_TICKS


def _programs(
    prepared: PreparedRun, words: Words, ints: Pool, numbers: Pool, designs: Mapping[str, int]
) -> tuple[Records, Records, Records, Records]:
    """Return programs, variants of programs, segments and workloads."""
    works = len(prepared.workloads)
    programs = records(len(prepared.classes) * works, tables.PROGRAM)
    ways: list[tuple[int, int]] = []
    segments: list[tuple[float, ...]] = []
    columns = draws(prepared)
    engines: dict[str, int] = {}
    rows = records(works, tables.WORKLOAD)
    for number, job_class in enumerate(prepared.workloads):
        rows[number].gang = job_class.gang
        rows[number].deadline = job_class.deadline_ticks
        rows[number].priority = job_class.workload.priority
        rows[number].way_at = rows[number].stretch_at = -1
        rows[number].patience = patience_s(job_class.workload)
        rows[number].max_waiting = -1 if job_class.workload.max_waiting is None else job_class.workload.max_waiting
        rows[number].patience_draw = -1 if job_class.patience is None else len(columns[number]) - 1
    for (cls, work), compiled in prepared.compiled.items():
        p = programs[cls * works + work]
        p.ways = len(ways)
        for variant in compiled.variants:
            first = len(segments)
            for phase in variant:
                for place, body in enumerate(phase):
                    for s in body:
                        engine = engines.setdefault(s.engine, len(engines))
                        ends_body = s is body[-1]
                        row = _segment(s, columns.get(work, []), ints, numbers, words)
                        ends = (engine, ends_body, ends_body and place == len(phase) - 1)
                        faults = faults_of(prepared, cls, work, s.name)
                        asks = prepared.classes[cls].executor is not None
                        needs = _design(s, designs if cls in prepared.designs else {}, ints)
                        segments.append(
                            (*row[:7], *ends, asks, ints.add(faults), len(faults), *needs, *row[7:], s.share)
                        )
            ways.append((first, len(segments) - 1))
        if compiled.variant_of is not None:
            rows[work].way_at = ints.add(compiled.variant_of)
        p.estimate_at, p.estimate = _one_or_all(compiled.estimate_s, numbers)
        p.energy_at, p.energy = _one_or_all(compiled.energy_j, numbers)
        p.mean = compiled.mean_s
        p.price = prepared.classes[cls].price_usd_per_s or 0.0
        p.preference = prepared.preference[cls, work]
        p.footprint_at, p.footprint = _one_or_all(compiled.footprint_bytes, numbers)
        p.weights = compiled.decoder.reserved_bytes if compiled.decoder is not None else 0.0
        p.own = (cls, work) in own_intervals(prepared)
        p.first_at = -1 if compiled.first_ticks is None else ints.add(compiled.first_ticks)
        if compiled.prompts is not None and compiled.outputs is not None:  # lengths do not depend on the device
            rows[work].prompts, rows[work].outputs = ints.add(compiled.prompts), ints.add(compiled.outputs)
        p.batch_at = -1
        if prepared.policy.batch.kind == "request" and (table := prepared.batches(cls, work)) is not None:
            p.batch_at = numbers.add(np.concatenate([table.seconds, table.watts]))
            p.batch_drawn = table.drawn
    write_draws(prepared, rows, columns, ints.add, numbers.add)
    return (
        programs,
        np.array(ways or [(0, 0)], dtype=tables.WAY).view(np.recarray),
        np.array(segments, dtype=tables.SEGMENT).view(np.recarray),
        rows,
    )


def _design(segment: Segment, numbers: Mapping[str, int], ints: Pool) -> tuple[int, int]:
    """Return the design of a segment, or -1, and the offset of those of each job if they differ, or -1."""
    if not numbers or isinstance(segment.design, str):
        return numbers.get(str(segment.design), -1) if numbers else -1, -1
    words, which = np.unique(segment.design, return_inverse=True)
    return -1, ints.add(np.array([numbers.get(word, -1) for word in words.tolist()], dtype=np.int64)[which])


def _classes(prepared: PreparedRun, numbers: Pool) -> tuple[Records, Records, np.ndarray]:
    """Return the classes, and the trees of their devices, or with a central queue the indexes of idle ones."""
    rows = records(len(prepared.classes), tables.CLASS)
    scaled = {fleet_class.number for fleet_class, _ in prepared.scaled}
    size = 0
    ends: list[int] = []
    for row, fleet_class in zip(rows, prepared.classes, strict=True):
        routed = prepared.policy.route.score is not None
        top, (node_count, leaf) = (ROOT, tree_size(fleet_class.count)) if routed else (0, index_size(fleet_class.count))
        row.first, row.count, row.idle = fleet_class.first, fleet_class.count, fleet_class.begin
        row.tree, row.leaf = size + top, size + leaf
        row.memory, row.idle_w = fleet_class.memory_bytes, fleet_class.idle_w
        row.scaled = fleet_class.number in scaled
        designs = prepared.designs.get(fleet_class.number)
        if designs is not None and prepared.reconfigures:
            row.regions, row.load_ticks, row.load_w = designs.regions, designs.load_ticks, designs.load_w
        row.asks = any(
            len(faults_of(prepared, cls, work, segment.name))
            for (cls, work), compiled in prepared.compiled.items()
            if cls == fleet_class.number
            for segment in compiled.segments()
        )
        row.kind = {"continuous": tables.SERVER_KIND, "stream": tables.STREAM}.get(
            kind_of_station(prepared, fleet_class), tables.SINGLE
        )
        decoders = [c.decoder for (cls, _), c in prepared.compiled.items() if cls == fleet_class.number]
        if row.kind == tables.SERVER_KIND and decoders and decoders[0] is not None:
            write_step_costs(row, decoders[0], numbers.add)
            write_engine(row, decoders[0])
            row.step_factor = prepared.step_factors.get(fleet_class.number, 1.0)
            write_role(row, prepared, fleet_class)
        size += node_count
        ends.append(size)
    if prepared.policy.route.score is None:
        idle = np.zeros(size, dtype=np.int64)
        for row, fleet_class in zip(rows, prepared.classes, strict=True):
            fill_index(idle[row.tree :], int(row.leaf - row.tree), fleet_class.begin)
        return rows, records(0, tables.NODE), idle
    tree = records(size, tables.NODE)
    for row, end, fleet_class in zip(rows, ends, prepared.classes, strict=True):
        if prepared.policy.route.rank_by == "last_chosen":
            tree.load[row.leaf : row.leaf + row.count] = np.arange(row.first, row.first + row.count)
        tree.load[row.leaf + fleet_class.begin : end] = NOT_HERE
        tree.winner[row.leaf : end] = row.first + np.arange(end - row.leaf)
        fill_tree(tree[row.tree - ROOT : end], int(row.leaf - row.tree) + ROOT)
    return rows, tree, np.zeros(0, dtype=np.int64)


def _largest_batch(prepared: PreparedRun) -> int:
    """Return the most jobs that a device executes together."""
    batch = prepared.policy.batch
    if batch.kind != "continuous":
        return batch.size
    return max((c.replica.largest_step(batch).sequences for c in prepared.classes), default=1)


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
        return (tables.DRAWN, 0, 0, column, watts_at, lane, name, segment.drawn.seconds, watts)
    if isinstance(segment.ticks, int):
        return (tables.CONSTANT, segment.ticks, 0, 0, watts_at, lane, name, 0.0, watts)
    return (tables.BY_JOB, 0, ticks.add(segment.ticks), 0, watts_at, lane, name, 0.0, watts)


def _queues_by_class(prepared: PreparedRun, lines: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return which central queues each class serves, and the number of queues; each owner has so many ``lines``."""
    if prepared.policy.route.score is not None:
        empty = np.zeros(len(prepared.classes) + 1, dtype=np.int64)
        return empty, np.zeros(1, dtype=np.int64), prepared.device_count * lines
    of: list[list[int]] = [[] for _ in prepared.classes]
    for number, signature in enumerate(prepared.signatures):
        for cls in signature:
            of[cls] += range(number * lines, (number + 1) * lines)
    at = np.cumsum([0, *(len(queues) for queues in of)]).astype(np.int64)
    flat = np.array([queue for queues in of for queue in queues] or [0], dtype=np.int64)
    return at, flat, len(prepared.signatures) * lines
