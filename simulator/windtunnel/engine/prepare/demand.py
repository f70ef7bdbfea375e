"""The minimum demand of a run's jobs on each class of devices, from which planning derives its lower bounds.

Every figure is at most what the engine charges, whatever the counts of devices and however jobs are batched. What is
impossible with these figures is therefore impossible. Jobs that run one at a time or on streams take exactly their
segments. A job in a batch takes a share of what the batch does together, and the smallest share follows from the
device's own tables: docs/planning.md derives each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray, TickArray
from windtunnel.engine.prepare.batches import batch_cost
from windtunnel.engine.prepare.decoder_tables import CONTEXT_GRAIN
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.designs import designs_of
from windtunnel.engine.prepare.handover import EntrySets, entry_sets
from windtunnel.engine.prepare.offered_load import max_failed_jobs
from windtunnel.engine.prepare.prepared import FleetClass, JobClass, PreparedRun
from windtunnel.engine.prepare.programs import Compiled, Segment, is_uniform
from windtunnel.scenario.program import OpStage

BoolArray = npt.NDArray[np.bool_]
Phase = Literal["whole", "prefill", "decode"]
_MAX_FAILED_JOBS = 0.5
"""The largest expected number of failed jobs with which every job is assumed to complete."""
_POWER_SLACK = 1 - 1e-6
"""A factor on energies: the engine rounds powers to multiples of a small unit, and the bound must stay below that."""


@dataclass(frozen=True)
class Resource:
    """A resource of every device of a class that jobs occupy: the device itself, or one of its hardware engines.

    A device offers ``capacity`` seconds of it in each second. ``whole_s`` and ``first_s`` are the minimum seconds that
    each job occupies it in total, and until its first result; shape (jobs,), and 0 where the class cannot run the job.
    """

    class_number: int
    name: str
    capacity: float
    whole_s: FloatArray
    first_s: FloatArray


@dataclass(frozen=True)
class Demand:
    """The minimum demand of n jobs, in order of arrival, on each of c classes of devices (fleet entries).

    Attributes:
        arrival_s: Arrival times (s); shape (n,).
        workload: The workload number of each job; shape (n,).
        workloads: The names of the workloads.
        resources: The resources that jobs occupy.
        eligible: Whether the class can run the job; shape (c, n).
        alone_s: The minimum time from the job's start to its end (s); shape (c, n).
        alone_first_s: The minimum time from the job's start to its first result (s); shape (c, n).
        energy_j: The minimum energy above idle (J); shape (c, n).
        gap_s: The minimum time between two tokens of the job, 0 if it generates none (s); shape (c, n).
        token_s: The minimum of a job's mean time per token after the first (s): with speculative decoding a step may
            give several; shape (c, n).
        idle_w: The idle power of one device (W); shape (c,).
        following: The number of tokens after the first; shape (n,).
        end_s: The time at which the run stops, or None if it drains.
        notes: Explanations of demands that have no known bound and are therefore 0.
        max_warm_up: The largest share of the jobs that the warm-up may exclude from time statistics.
        gang: The number of devices that a job of each workload occupies at once; shape (workloads,).
        complete: Whether these are all jobs of the run and every one of them completes, whatever the fleet.
        closed: Whether these are the first jobs of the only workload, which is closed, in the order of submission;
            their arrival times are not known and 0, and every job that is submitted completes in the end.
        users: The number of users of all closed workloads.
        losses: Why jobs may end without having been completed; empty if none is expected to.
        load_s: The longest time for which a job may load designs (s). No other demand includes loads, because the
            least that a fleet loads depends on its schedule.
        decoding: The demand of decoding, where classes read prompts that others decode; the demand of all classes is
            that of reading prompts then, and both have to be met. Entries with both roles offer their time to each.
        sets: Which classes a fleet may have together, by their roles.
    """

    arrival_s: FloatArray
    workload: npt.NDArray[np.int64]
    workloads: Sequence[str]
    resources: Sequence[Resource]
    eligible: BoolArray
    alone_s: FloatArray
    alone_first_s: FloatArray
    energy_j: FloatArray
    gap_s: FloatArray
    token_s: FloatArray
    idle_w: FloatArray
    following: FloatArray
    end_s: float | None
    notes: Sequence[str] = ()
    max_warm_up: float = 0.0
    gang: Sequence[int] = (1,)
    complete: bool = True
    closed: bool = False
    users: int = 0
    losses: Sequence[str] = ()
    load_s: float = 0.0
    decoding: Demand | None = None
    sets: EntrySets = field(default_factory=EntrySets)

    @property
    def longest_s(self) -> float:
        """The longest time that a job takes by itself on a class that can run it, with all its loads (s)."""
        return float(np.where(self.eligible, self.alone_s, 0.0).max()) + self.load_s

    def fits(self, counts: Sequence[int]) -> bool:
        """Return whether each job that occupies several devices finds so many of one class in a fleet of ``counts``."""
        enough = np.asarray(counts)[:, None] >= np.asarray(self.gang)[None, :]
        return all(
            bool((self.eligible[:, self.workload == w] & enough[:, w, None]).any(axis=0).all())
            for w, gang in enumerate(self.gang)
            if gang > 1
        )

    @property
    def judged(self) -> BoolArray:
        """The jobs whose times count however long the warm-up is; shape (n,)."""
        return np.arange(len(self)) >= int(len(self) * self.max_warm_up)

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def classes(self) -> int:
        """The number of classes of devices."""
        return len(self.eligible)


@dataclass
class _Minimum:
    """The minimum demand of one workload on one class; arrays have one element for each job, by rank."""

    whole: dict[str, FloatArray]
    first: dict[str, FloatArray]
    alone_s: FloatArray
    alone_first_s: FloatArray
    energy_j: FloatArray
    gap_s: float = 0.0
    note: str | None = None
    most_tokens: int = 1
    """The most tokens that one step gives a sequence."""
    first_j: FloatArray | None = None
    """The minimum energy above idle until the first result (J), if it is known apart."""

    def until_first(self) -> _Minimum:
        """Return the demand until the first result."""
        energy_j = np.zeros_like(self.energy_j) if self.first_j is None else self.first_j
        return replace(self, whole=self.first, alone_s=self.alone_first_s, energy_j=energy_j, gap_s=0.0)


def minimum_demand(prepared: PreparedRun) -> Demand:
    """Return the minimum demand of the jobs on each class of devices; it does not depend on the counts of devices."""
    if not prepared.disaggregated:
        return _demand(prepared, prepared.signatures, "whole")
    decoding = _demand(prepared, prepared.decode_signatures, "decode")
    reading = _demand(prepared, prepared.signatures, "prefill")
    # A request that moves decodes on some class of the other demand.
    moves = decoding.eligible.any(axis=0)
    later_s = np.where(decoding.eligible, decoding.alone_s, np.inf).min(axis=0, initial=np.inf)
    gap_s, token_s = (
        np.where(decoding.eligible, times, np.inf).min(axis=0, initial=np.inf)
        for times in (decoding.gap_s, decoding.token_s)
    )
    return replace(
        reading,
        alone_s=reading.alone_s + np.where(moves, later_s, 0.0),
        gap_s=np.where(moves, gap_s, reading.gap_s),
        token_s=np.where(moves, token_s, reading.token_s),
        decoding=decoding,
        sets=entry_sets(prepared.classes, prepared.compiled),
    )


# Long: one loop over classes and workloads fills every array of the result.
def _demand(prepared: PreparedRun, signatures: Sequence[tuple[int, ...]], phase: Phase) -> Demand:
    """Return the minimum demand of a phase of the jobs on the classes that ``signatures`` have for them."""
    users = sum(of.users for of in prepared.users)
    losses = _losses(prepared)
    # The order in which requests of sessions are submitted is not known.
    closed = bool(users) and len(prepared.workloads) == 1 and not losses and prepared.users[0].sessions is None
    known = _known_jobs(prepared, closed)
    jobs, classes = len(known.arrival), len(prepared.classes)
    eligible = np.zeros((classes, jobs), dtype=bool)
    alone, alone_first, energy, gap, token = (np.zeros((classes, jobs)) for _ in range(5))
    following = np.zeros(jobs)
    resources: list[Resource] = []
    notes: list[str] = []
    runs = np.zeros((len(signatures), classes), dtype=bool)
    for i, numbers in enumerate(signatures):
        runs[i, list(numbers)] = True
    stays = np.array([not decoders for decoders in prepared.decode_signatures], dtype=bool)
    for c in prepared.classes:
        whole: dict[str, FloatArray] = {}
        first: dict[str, FloatArray] = {}
        for w in prepared.workloads:
            compiled = prepared.compiled.get((c.number, w.number))
            indices = np.flatnonzero(known.workload == w.number)
            if compiled is None or not len(indices):
                continue
            able = runs[known.signature[indices], c.number]
            eligible[c.number, indices] = able
            ranks = known.rank[indices]
            if compiled.outputs is not None:
                following[indices] = compiled.outputs[ranks] - 1
            if not able.any():
                continue
            of_jobs = "whole" if phase == "prefill" and stays[known.signature[indices]].all() else phase
            minimum = _of_gang(_minimum(prepared, c, w, compiled, ranks, of_jobs), w.gang)
            for target, parts in ((whole, minimum.whole), (first, minimum.first)):
                for name, seconds in parts.items():
                    target.setdefault(name, np.zeros(jobs))[indices] = np.where(able, seconds, 0.0)
            alone[c.number, indices] = minimum.alone_s
            alone_first[c.number, indices] = minimum.alone_first_s
            energy[c.number, indices] = np.where(able, minimum.energy_j * _POWER_SLACK, 0.0)
            gap[c.number, indices] = minimum.gap_s
            token[c.number, indices] = minimum.gap_s / minimum.most_tokens
            if minimum.note is not None:
                notes.append(minimum.note)
        for name, seconds in whole.items():
            capacity = float(c.streams) if name == "device" else 1.0
            resources.append(Resource(c.number, name, capacity, seconds, first.get(name, np.zeros(jobs))))
    if users and not closed and not losses:
        notes.append("the work of users beside other workloads is not known in advance; 0 is used as its lower bound")
    # A fleet may have no device with the idle power of a scaled entry or of a shared chip.
    unsure = {c.number for c, _ in prepared.scaled}
    for chip in prepared.chips:
        unsure |= (on_chip := set(prepared.class_of_device()[list(chip.devices)].tolist()))
        energy[list(on_chip)] = 0.0
    if prepared.chips:
        notes.append("entries that share a chip save power together; 0 W is used as the lower bound of their power")
    if prepared.reconfigures:
        notes.append("the lower bound does not include loads of designs; fleets are simulated with them")
    return Demand(
        arrival_s=known.arrival / TICKS_PER_SECOND,
        workload=known.workload,
        workloads=[w.workload.name for w in prepared.workloads],
        resources=resources,
        eligible=eligible,
        alone_s=alone,
        alone_first_s=alone_first,
        energy_j=energy,
        gap_s=gap,
        token_s=token,
        idle_w=np.array([0.0 if c.number in unsure else c.idle_w for c in prepared.classes]),
        following=following,
        end_s=None if prepared.end is None else prepared.end / TICKS_PER_SECOND,
        notes=list(dict.fromkeys(notes)),
        max_warm_up=_max_warm_up(prepared),
        gang=[w.gang for w in prepared.workloads],
        complete=not losses and (not users or (closed and prepared.end is None)),
        closed=closed,
        users=users,
        losses=losses,
        load_s=_longest_loads_s(prepared),
    )


def _longest_loads_s(prepared: PreparedRun) -> float:
    """Return the longest time for which a job may load designs: one for each of its segments that need one (s)."""
    longest = 0
    for (cls, _), compiled in prepared.compiled.items():
        designs = prepared.designs.get(cls)
        if designs is not None and designs.changes:
            loads = max(
                sum(bool(designs_of(segment)) for phase in phases for body in phase for segment in body)
                for phases in compiled.variants
            )
            longest = max(longest, loads * designs.load_ticks)
    return longest / TICKS_PER_SECOND


@dataclass(frozen=True)
class _Known:
    """The jobs that are known before the run; shape (jobs,). ``signature`` indexes ``PreparedRun.signatures``."""

    arrival: TickArray
    workload: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    signature: npt.NDArray[np.int64]


def _known_jobs(prepared: PreparedRun, closed: bool) -> _Known:
    """Return the jobs of open workloads, and one job of each closed workload, or all that were drawn if ``closed``."""
    arrival, workload, rank, signature = [], [], [], []
    for of in prepared.users:
        count = of.capacity if closed else 1
        arrival.append(np.zeros(count, dtype=np.int64))
        workload.append(np.full(count, of.work))
        rank.append(np.arange(count))
        signature.append(of.signatures[:count])
    return _Known(
        np.concatenate([*arrival, prepared.arrival]),
        np.concatenate([*workload, prepared.workload_of]),
        np.concatenate([*rank, prepared.rank]),
        np.concatenate([*signature, prepared.eligible]),
    )


def _losses(prepared: PreparedRun) -> list[str]:
    """Return why jobs may end without having been completed; empty if none is expected to."""
    names = [w.workload.name for w in prepared.workloads if w.workload.patience is not None]
    reasons = [f"jobs of '{name}' may give up waiting" for name in names]
    # A rate limit that lets requests wait loses none.
    limited = [
        w.workload.name
        for w in prepared.workloads
        if w.workload.max_waiting is not None
        or (w.workload.rate_limit is not None and w.workload.rate_limit.over == "reject")
    ]
    reasons += [f"jobs of '{name}' may be rejected" for name in limited]
    failed = max_failed_jobs(prepared)
    if failed > _MAX_FAILED_JOBS:
        reasons.append(f"faults may end about {failed:,.0f} of {prepared.job_count:,} jobs for good")
    return reasons


def _max_warm_up(prepared: PreparedRun) -> float:
    """Return the largest share of the jobs that the warm-up can exclude (see ``results.steady``)."""
    stationary = all(w.workload.arrivals.stationary for w in prepared.workloads)
    return 0.5 if stationary and prepared.scenario.warm_up == "auto" else 0.0


def _minimum(
    prepared: PreparedRun, c: FleetClass, w: JobClass, compiled: Compiled, ranks: np.ndarray, phase: Phase
) -> _Minimum:
    batch = prepared.policy.batch
    if batch.kind == "none":
        return _one_by_one(prepared, c, compiled, w.source.count, ranks)
    if compiled.decoder is not None:
        largest = compiled.decoder.largest
        chunk = largest.tokens if batch.kind == "continuous" else None
        if phase == "decode":
            return _decoding(compiled, ranks, largest.sequences, largest.tokens)
        generating = _generating(compiled, ranks, largest.sequences, chunk, _least_read(prepared, w, compiled)[ranks])
        return generating.until_first() if phase == "prefill" else generating
    if is_uniform(w.program):
        sizes = range(1, batch.size + 1)
        costs = [batch_cost(w.program, c.device, w.source, [0] * n, compiled) for n in sizes]
        seconds = np.array([cost.ticks for cost in costs]) / TICKS_PER_SECOND
        watts = np.array([cost.watts for cost in costs])
        share, joules = float((seconds / sizes).min()), float((seconds * watts / sizes).min())
        return _flat(len(ranks), share, float(seconds.min()), joules)
    if all(isinstance(stage, OpStage) and stage.op.name == "service" for stage in w.program):
        # A batch of stated times takes as long as its longest job, so each of at most `size` jobs takes this share.
        alone = _one_by_one(prepared, c, compiled, w.source.count, ranks)
        seconds = alone.alone_s
        return _Minimum(
            {"device": seconds / batch.size}, {"device": seconds / batch.size}, seconds, seconds, alone.energy_j * 0.0
        )
    return _flat(
        len(ranks),
        0.0,
        0.0,
        0.0,
        f"no lower bound is known for batches of '{w.workload.name}', whose jobs differ; 0 is used",
    )


def _least_read(prepared: PreparedRun, w: JobClass, compiled: Compiled) -> FloatArray:
    """Return the fewest tokens of the prompt of each job that are read, by rank: all of them without a prefix cache.

    With one, the last token is read in any case. Where every replica admits requests in the order of arrival, the cache
    holds only what earlier requests have brought, so from the first run of blocks on that none of them has, a prompt is
    read. Requests that faults or users delay, or that overtake others, may find what later ones have brought.
    """
    assert compiled.prompts is not None  # noqa: S101  a decoder has prompts
    prompts: FloatArray = compiled.prompts.astype(np.float64)
    if prepared.policy.batch.prefix_cache is None:
        return prompts
    least: FloatArray = np.minimum(prompts, 1.0)
    in_order = (
        prepared.policy.order.key is None and prepared.policy.preemption == "none" and not prepared.scenario.faults
    )
    if not in_order or prepared.users or len(prepared.workloads) > 1 or not prepared.chains:
        return least
    return np.asarray(np.maximum(least, np.minimum(prompts, prepared.chains[w.number].first_read)), dtype=np.float64)


def _of_gang(one: _Minimum, gang: int) -> _Minimum:
    """Return the demand of jobs that occupy several devices, from that of one device; times alone are the same."""
    if gang == 1:
        return one
    return replace(
        one,
        whole={name: seconds * gang for name, seconds in one.whole.items()},
        first={name: seconds * gang for name, seconds in one.first.items()},
        energy_j=one.energy_j * gang,
    )


def _flat(jobs: int, share_s: float, alone_s: float, energy_j: float, note: str | None = None) -> _Minimum:
    seconds = np.full(jobs, share_s)
    alone = np.full(jobs, alone_s)
    return _Minimum({"device": seconds}, {"device": seconds}, alone, alone, np.full(jobs, energy_j), 0.0, note)


def _one_by_one(prepared: PreparedRun, c: FleetClass, compiled: Compiled, count: int, ranks: np.ndarray) -> _Minimum:
    """Return the demand of jobs without batches. A phase takes as long as the longest of its streams."""
    length, joules = np.zeros(count), np.zeros(count)
    engines: dict[str, FloatArray] = {}
    shared = c.streams > 1
    for number, phases in enumerate(compiled.variants):
        members = np.arange(count) if compiled.variant_of is None else np.flatnonzero(compiled.variant_of == number)
        for phase in phases:
            longest = np.zeros(len(members))
            shared = shared or len(phase) > 1
            for body in phase:
                alone = np.zeros(len(members))
                for segment in body:
                    seconds, watts = _time_and_power(segment, members)
                    alone += seconds
                    joules[members] += seconds * np.maximum(watts - (c.active_w if shared else 0.0), 0.0)
                    engines.setdefault(segment.engine, np.zeros(count))[members] += segment.share * seconds
                longest = np.maximum(longest, alone)
            length[members] += longest
    first = length if compiled.first_ticks is None else compiled.first_ticks / TICKS_PER_SECOND
    whole = {"device": length[ranks]}
    if shared:
        whole |= {f"engine {name}": seconds[ranks] for name, seconds in engines.items()}
    until = {"device": np.broadcast_to(first, (count,))[ranks]} if compiled.first_ticks is not None else dict(whole)
    return _Minimum(whole, until, whole["device"], until["device"], joules[ranks])


def _time_and_power(segment: Segment, ranks: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Return the time (s) and the power above idle (W) of a segment for the jobs of these ranks."""
    seconds = np.asarray(segment.ticks, dtype=np.float64) / TICKS_PER_SECOND
    watts = np.asarray(segment.watts, dtype=np.float64)
    return (
        np.broadcast_to(seconds, ranks.shape) if seconds.ndim == 0 else seconds[ranks],
        np.broadcast_to(watts, ranks.shape) if watts.ndim == 0 else watts[ranks],
    )


def _generating(compiled: Compiled, ranks: np.ndarray, size: int, chunk: int | None, prompts: FloatArray) -> _Minimum:
    """Return the demand of token generation in batches of at most ``size`` sequences.

    ``chunk`` is the maximum number of tokens in a step of a continuous batch, or None for static batches. ``prompts``
    has the tokens of each prompt that are read.
    """
    costs = compiled.decoder
    assert costs is not None and compiled.prompts is not None and compiled.outputs is not None  # noqa: S101
    contexts = compiled.prompts[ranks].astype(np.float64)
    outputs = compiled.outputs[ranks].astype(np.float64)
    decoded = outputs - 1
    most = costs.linear.shape[1] - 1 if chunk is None else min(chunk, costs.linear.shape[1] - 1)
    # A step gives a sequence at most as many tokens as it verifies for it.
    queries = costs.query_tokens
    size = min(size, costs.decode.shape[1] - 1)
    positions = size * queries
    least_linear, least_head, least_decode = costs.least_tables()
    totals: list[FloatArray] = []
    for i in (0, 1):  # seconds, then joules
        linear, head = _lower_envelope(least_linear[i, 1 : most + 1]), _lower_envelope(least_head[i, 1 : positions + 1])
        a_token = float((linear / np.arange(1, most + 1)).min())
        a_head = float((head / np.arange(1, positions + 1)).min())
        read = prompts * a_token
        if chunk is None:
            together = (least_linear[i, 1 : size + 1] + least_head[i, 1 : size + 1])[: min(size, most)]
            step_share = float((together / np.arange(1, len(together) + 1)).min())
            passed = read + a_head + decoded * step_share
        else:
            # A step costs at least `fixed + slope * tokens`, and decoding takes at least decoded / positions steps.
            # Both bounds hold for any set of these jobs; the one with the larger sum over all jobs is used.
            tokens = prompts + decoded
            fixed, slope = tangent_below(
                linear, min(float(tokens.sum()) / max(float(decoded.sum()) / positions, 1e-9), float(most))
            )
            forms = [fixed * decoded / positions + slope * tokens, tokens * a_token]
            passed = max(forms, key=lambda form: float(form.sum())) + a_head * outputs
        alpha, beta = _attention(least_decode[i], size, float(np.mean(contexts + decoded / 2)))
        # The steps of a sequence attend to its prompt and to the tokens before them, which are at most `queries` apart.
        steps = decoded / queries
        attended = steps * alpha + beta * steps * (contexts + np.maximum(decoded - queries, 0.0) / 2 + 1.0)
        own = costs.least_prefill(prompts) if i == 0 else np.zeros_like(prompts)
        # Pipeline stages work side by side, so a replica's share of a step is at least that of its largest stage.
        share = costs.stage_share if i == 0 else 1.0
        totals += [share * (read + a_head + own), share * (passed + own + attended)]
    first, whole = totals[0], totals[1]
    # The minimum duration of one step, whatever else it processes.
    gap = float(
        least_linear[0, 1 : most + 1].min()
        + least_head[0, 1 : positions + 1].min()
        + least_decode[0, 1 : size + 1].min()
    )
    alone_first = _alone_first(costs, prompts, most, positions)
    return _Minimum(
        {"device": whole},
        {"device": first},
        alone_first + np.ceil(decoded / queries) * gap,
        alone_first,
        totals[3],
        gap if chunk else 0.0,
        first_j=totals[2],
        most_tokens=queries,
    )


def _decoding(compiled: Compiled, ranks: np.ndarray, size: int, most: int) -> _Minimum:
    """Return the demand of decoding on devices to which KV caches are sent, in batches of at most ``size`` sequences.

    The first token comes with the cache, and each step gives at most as many tokens as it verifies. A step verifies at
    least the tokens that it gives.
    """
    costs = compiled.decoder
    assert costs is not None and compiled.prompts is not None and compiled.outputs is not None  # noqa: S101
    prompts = compiled.prompts[ranks].astype(np.float64)
    decoded = compiled.outputs[ranks].astype(np.float64) - 1
    queries = costs.query_tokens
    size, most = min(size, costs.decode.shape[1] - 1), min(most, costs.linear.shape[1] - 1)
    positions = size * queries
    steps = decoded / queries
    least_linear, least_head, least_decode = costs.least_tables()
    totals: list[FloatArray] = []
    for i in (0, 1):  # seconds, then joules
        linear, head = _lower_envelope(least_linear[i, 1 : most + 1]), _lower_envelope(least_head[i, 1 : positions + 1])
        a_token = float((linear[:positions] / np.arange(1, min(positions, most) + 1)).min())
        a_head = float((head / np.arange(1, positions + 1)).min())
        alpha, beta = _attention(least_decode[i], size, float(np.mean(prompts + decoded / 2)))
        attended = steps * alpha + beta * steps * (prompts + np.maximum(decoded - queries, 0.0) / 2 + 1.0)
        share = costs.stage_share if i == 0 else 1.0
        totals.append(share * (decoded * (a_token + a_head) + attended))
    gap = float(
        least_linear[0, 1 : most + 1].min()
        + least_head[0, 1 : positions + 1].min()
        + least_decode[0, 1 : size + 1].min()
    )
    none = np.zeros_like(decoded)
    return _Minimum(
        {"device": totals[0]}, {"device": none}, np.ceil(steps) * gap, none, totals[1], gap, most_tokens=queries
    )


def _alone_first(costs: DecoderCosts, prompts: FloatArray, most: int, size: int) -> FloatArray:
    """Return the minimum time until a prompt is processed, in as many steps as its tokens need (s)."""
    least_linear, least_head, _ = costs.least_tables()
    linear = _lower_envelope(least_linear[0, 1 : most + 1])
    fixed, slope = tangent_below(linear, min(float(prompts.mean()), float(most)))
    return costs.stage_share * (
        np.ceil(prompts / most) * fixed
        + slope * prompts
        + costs.least_prefill(prompts)
        + float(least_head[0, 1 : size + 1].min())
    )


def _attention(decode: FloatArray, size: int, context: float) -> tuple[float, float]:
    """Return alpha, beta >= 0 such that a step over b sequences of mean context x costs at least b (alpha + beta x).

    ``decode`` is the table by sequences, from 0, and points of context.
    """
    table = decode[1 : size + 1]
    least = _lower_envelope((table / np.arange(1, size + 1)[:, None]).min(axis=0))
    fixed, slope = tangent_below(least, context / CONTEXT_GRAIN, start=0)
    return fixed, slope / CONTEXT_GRAIN


def _lower_envelope(values: FloatArray) -> FloatArray:
    """Return the largest non-decreasing sequence that is nowhere above ``values``."""
    return np.minimum.accumulate(values[::-1])[::-1]


def tangent_below(values: FloatArray, at: float, start: int = 1) -> tuple[float, float]:
    """Return the line a + b x with a, b >= 0 that lies below ``values`` and is largest at ``at``.

    ``values`` are the points at x = start, start + 1, ... and must not decrease. The line is the tangent of their lower
    convex hull, restricted to a >= 0.
    """
    at_points = np.arange(start, start + len(values), dtype=np.float64)
    positive = at_points > 0
    through_zero = float((values[positive] / at_points[positive]).min()) if positive.any() else 0.0
    options = [(0.0, through_zero), (float(values.min()), 0.0)]
    # The edge of the hull at `at`: the points between its ends that are furthest below it replace them.
    left, right = 0, len(values) - 1
    while right > left:
        slope = float(values[right] - values[left]) / (right - left)
        fixed = float(values[left]) - slope * at_points[left]
        below = values[left : right + 1] - (fixed + slope * at_points[left : right + 1])
        lowest = left + int(np.argmin(below))
        if lowest in (left, right) or below[lowest - left] >= 0:
            if fixed >= 0 and slope >= 0:
                options.append((float(fixed), slope))
            break
        left, right = (lowest, right) if at_points[lowest] <= at else (left, lowest)
    return max(options, key=lambda line: line[0] + line[1] * at)
