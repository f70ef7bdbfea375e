"""The least that each job of a prepared run asks of each class of devices (core/demand.py says what of).

Jobs one at a time or on streams take exactly their segments. In a batch a job takes a share of what the batch does
together, and the least share is found from the device's own tables: docs/planning.md derives each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from windtunnel.core.ticks import TICKS_PER_SECOND, FloatArray
from windtunnel.engine.prepare.decoding import CONTEXT_GRAIN, DecoderCosts
from windtunnel.engine.prepare.demand_profile import Demand, Resource
from windtunnel.engine.prepare.prepared import FleetClass, JobClass, Prepared
from windtunnel.engine.prepare.programs import Compiled, Segment, batch_cost, is_uniform
from windtunnel.scenario.program import OpStage

_POWER_SLACK = 1 - 1e-6
"""The engine rounds powers to a grain; a bound on energy stays below that."""


@dataclass
class _Least:
    """One workload on one class, by rank: seconds of each resource, alone and energy."""

    whole: dict[str, FloatArray]
    first: dict[str, FloatArray]
    alone_s: FloatArray
    alone_first_s: FloatArray
    energy_j: FloatArray
    gap_s: float = 0.0
    note: str | None = None


def least_demand(prepared: Prepared) -> Demand:
    """What the jobs of ``prepared`` ask for at least, on each of its classes; counts of devices do not enter."""
    jobs, classes = len(prepared.arrival), len(prepared.classes)
    eligible = np.zeros((classes, jobs), dtype=bool)
    alone, alone_first, energy = (np.zeros((classes, jobs)) for _ in range(3))
    gap = np.zeros(classes)
    following = np.zeros(jobs)
    resources: list[Resource] = []
    notes: list[str] = []
    runs = np.zeros((len(prepared.signatures), classes), dtype=bool)
    for i, numbers in enumerate(prepared.signatures):
        runs[i, list(numbers)] = True
    for c in prepared.classes:
        whole: dict[str, FloatArray] = {}
        first: dict[str, FloatArray] = {}
        for w in prepared.workloads:
            compiled = prepared.compiled.get((c.number, w.number))
            mine = np.flatnonzero(prepared.workload_of == w.number)
            if compiled is None or not len(mine):
                continue
            able = runs[prepared.eligible[mine], c.number]
            eligible[c.number, mine] = able
            ranks = prepared.rank[mine]
            if compiled.outputs is not None:
                following[mine] = compiled.outputs[ranks] - 1
            if not able.any():
                continue
            least = _least(prepared, c, w, compiled, ranks)
            for target, found in ((whole, least.whole), (first, least.first)):
                for name, seconds in found.items():
                    target.setdefault(name, np.zeros(jobs))[mine] = np.where(able, seconds, 0.0)
            alone[c.number, mine] = least.alone_s
            alone_first[c.number, mine] = least.alone_first_s
            energy[c.number, mine] = np.where(able, least.energy_j * _POWER_SLACK, 0.0)
            gap[c.number] = max(gap[c.number], least.gap_s)
            if least.note is not None:
                notes.append(least.note)
        for name, seconds in whole.items():
            capacity = float(c.streams) if name == "device" else 1.0
            resources.append(Resource(c.number, name, capacity, seconds, first.get(name, np.zeros(jobs))))
    return Demand(
        arrival_s=prepared.arrival / TICKS_PER_SECOND,
        workload=prepared.workload_of,
        workloads=[w.workload.name for w in prepared.workloads],
        resources=resources,
        eligible=eligible,
        alone_s=alone,
        alone_first_s=alone_first,
        energy_j=energy,
        gap_s=gap,
        idle_w=np.array([c.idle_w for c in prepared.classes]),
        following=following,
        end_s=None if prepared.end is None else prepared.end / TICKS_PER_SECOND,
        notes=list(dict.fromkeys(notes)),
        left_out=_left_out(prepared),
    )


def _left_out(prepared: Prepared) -> float:
    """The largest share of jobs that the warm-up may be (steady.warm_up): none where every job counts."""
    stationary = all(w.workload.arrivals.stationary for w in prepared.workloads)
    return 0.5 if stationary and prepared.scenario.warm_up == "auto" else 0.0


def _least(prepared: Prepared, c: FleetClass, w: JobClass, compiled: Compiled, ranks: np.ndarray) -> _Least:
    batch = prepared.policy.batch
    if batch.kind == "none":
        return _one_by_one(prepared, c, compiled, w.source.count, ranks)
    if compiled.decoder is not None:
        return _generating(compiled, ranks, batch.size, batch.tokens if batch.kind == "continuous" else None)
    if is_uniform(w.program):
        sizes = range(1, batch.size + 1)
        costs = np.array(
            [batch_cost(w.program, c.device, w.source, [0] * n, compiled)[:2] for n in sizes], dtype=np.float64
        )
        seconds = costs[:, 0] / TICKS_PER_SECOND
        share, joules = float((seconds / sizes).min()), float((seconds * costs[:, 1] / sizes).min())
        return _flat(len(ranks), share, float(seconds.min()), joules)
    if all(isinstance(stage, OpStage) and stage.op.name == "service" for stage in w.program):
        # A batch of stated times lasts as long as its longest, so each of at most `size` jobs has at least this part.
        alone = _one_by_one(prepared, c, compiled, w.source.count, ranks)
        seconds = alone.alone_s
        return _Least(
            {"device": seconds / batch.size}, {"device": seconds / batch.size}, seconds, seconds, alone.energy_j * 0.0
        )
    return _flat(
        len(ranks),
        0.0,
        0.0,
        0.0,
        f"no bound is known for batches of '{w.workload.name}', whose jobs differ: taken as 0",
    )


def _flat(jobs: int, share_s: float, alone_s: float, energy_j: float, note: str | None = None) -> _Least:
    seconds = np.full(jobs, share_s)
    alone = np.full(jobs, alone_s)
    return _Least({"device": seconds}, {"device": seconds}, alone, alone, np.full(jobs, energy_j), 0.0, note)


def _one_by_one(prepared: Prepared, c: FleetClass, compiled: Compiled, count: int, ranks: np.ndarray) -> _Least:
    """Jobs on their own or on streams: the segments themselves; side by side a phase lasts as long as its longest."""
    length, joules = np.zeros(count), np.zeros(count)
    engines: dict[str, FloatArray] = {}
    shared = c.streams > 1
    for number, phases in enumerate(compiled.variants):
        mine = np.arange(count) if compiled.variant_of is None else np.flatnonzero(compiled.variant_of == number)
        for phase in phases:
            longest = np.zeros(len(mine))
            shared = shared or len(phase) > 1
            for body in phase:
                alone = np.zeros(len(mine))
                for segment in body:
                    seconds, watts = _of(segment, mine)
                    alone += seconds
                    joules[mine] += seconds * np.maximum(watts - (c.active_w if shared else 0.0), 0.0)
                    engines.setdefault(segment.engine, np.zeros(count))[mine] += segment.share * seconds
                longest = np.maximum(longest, alone)
            length[mine] += longest
    first = length if compiled.first_ticks is None else compiled.first_ticks / TICKS_PER_SECOND
    whole = {"device": length[ranks]}
    if shared:
        whole |= {f"engine {name}": seconds[ranks] for name, seconds in engines.items()}
    until = {"device": np.broadcast_to(first, (count,))[ranks]} if compiled.first_ticks is not None else dict(whole)
    return _Least(whole, until, whole["device"], until["device"], joules[ranks])


def _of(segment: Segment, ranks: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """(seconds, watts above idle) of a segment for the jobs of those ranks."""
    seconds = np.asarray(segment.ticks, dtype=np.float64) / TICKS_PER_SECOND
    watts = np.asarray(segment.watts, dtype=np.float64)
    return (
        np.broadcast_to(seconds, ranks.shape) if seconds.ndim == 0 else seconds[ranks],
        np.broadcast_to(watts, ranks.shape) if watts.ndim == 0 else watts[ranks],
    )


def _generating(compiled: Compiled, ranks: np.ndarray, size: int, chunk: int | None) -> _Least:
    """Decoding in batches of at most ``size`` sequences and, continuously, ``chunk`` tokens a step (None: static)."""
    costs = compiled.decoder
    assert costs is not None and compiled.prompts is not None and compiled.outputs is not None  # noqa: S101
    prompts = compiled.prompts[ranks].astype(np.float64)
    outputs = compiled.outputs[ranks].astype(np.float64)
    decoded = outputs - 1
    most = costs.linear.shape[1] - 1 if chunk is None else min(chunk, costs.linear.shape[1] - 1)
    size = min(size, costs.head.shape[1] - 1)
    found: list[FloatArray] = []
    for i in (0, 1):
        linear, head = _never_less(costs.linear[i, 1 : most + 1]), _never_less(costs.head[i, 1 : size + 1])
        a_token = float((linear / np.arange(1, most + 1)).min())
        a_head = float((head / np.arange(1, size + 1)).min())
        read = prompts * a_token
        if chunk is None:
            together = (costs.linear[i, 1 : size + 1] + costs.head[i, 1 : size + 1])[: min(size, most)]
            each = float((together / np.arange(1, len(together) + 1)).min())
            passed = read + a_head + decoded * each
        else:
            # A step costs at least `fixed + slope * tokens`, and decoding takes at least decoded / size steps. Either
            # form holds for any set of these jobs; the one that says more of all of them is taken.
            tokens = prompts + decoded
            fixed, slope = below(linear, min(float(tokens.sum()) / max(float(decoded.sum()) / size, 1e-9), float(most)))
            forms = [fixed * decoded / size + slope * tokens, tokens * a_token]
            passed = max(forms, key=lambda form: float(form.sum())) + a_head * outputs
        alpha, beta = _attention(costs, i, size, float(np.mean(prompts + decoded / 2)))
        attended = decoded * alpha + beta * (decoded * prompts + decoded * (decoded + 1) / 2)
        own = _prefill(costs, prompts) if i == 0 else np.zeros_like(prompts)
        found += [read + a_head + own, passed + own + attended]
    first, whole = found[0], found[1]
    # What one step takes at least, whoever else is in it.
    gap = float(
        costs.linear[0, 1 : most + 1].min() + costs.head[0, 1 : size + 1].min() + costs.decode[0, 1 : size + 1].min()
    )
    alone_first = _alone_first(costs, prompts, most, size)
    return _Least(
        {"device": whole}, {"device": first}, alone_first + decoded * gap, alone_first, found[3], gap if chunk else 0.0
    )


def _alone_first(costs: DecoderCosts, prompts: FloatArray, most: int, size: int) -> FloatArray:
    """The least time until a prompt is read, in as many steps as its tokens need."""
    linear = _never_less(costs.linear[0, 1 : most + 1])
    fixed, slope = below(linear, min(float(prompts.mean()), float(most)))
    return (
        np.ceil(prompts / most) * fixed
        + slope * prompts
        + _prefill(costs, prompts)
        + float(costs.head[0, 1 : size + 1].min())
    )


def _prefill(costs: DecoderCosts, prompts: FloatArray) -> FloatArray:
    """Attention of whole prompts: in chunks it takes no less, since the chunks' differences add up to it."""
    grid = np.arange(costs.prefill.shape[1]) * float(CONTEXT_GRAIN)
    # The engine's table is read by its index, so its first point stands for no tokens.
    read: FloatArray = np.interp(prompts, grid, costs.prefill[0])
    return read


def _attention(costs: DecoderCosts, i: int, size: int, context: float) -> tuple[float, float]:
    """(alpha, beta), neither negative: a step over b sequences of mean context x costs at least b(alpha + beta x)."""
    table = costs.decode[i, 1 : size + 1]
    least = _never_less((table / np.arange(1, size + 1)[:, None]).min(axis=0))
    fixed, slope = below(least, context / CONTEXT_GRAIN, start=0)
    return fixed, slope / CONTEXT_GRAIN


def _never_less(values: FloatArray) -> FloatArray:
    """The largest rising sequence below ``values``: what at least that many cost."""
    return np.minimum.accumulate(values[::-1])[::-1]


def below(values: FloatArray, at: float, start: int = 1) -> tuple[float, float]:
    """(a, b), neither negative, with a + b x at most ``values`` at x = start, start + 1, ..., and greatest at ``at``.

    The tangent of the lower convex hull, held at a >= 0. ``values`` must not fall.
    """
    x = np.arange(start, start + len(values), dtype=np.float64)
    hull: list[int] = []
    for k in range(len(values)):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            if (values[j] - values[i]) * (x[k] - x[i]) < (values[k] - values[i]) * (x[j] - x[i]):
                break
            hull.pop()
        hull.append(k)
    positive = x > 0
    through_zero = float((values[positive] / x[positive]).min()) if positive.any() else 0.0
    options = [(0.0, through_zero), (float(values.min()), 0.0)]
    for i, j in pairwise(hull):
        slope = float((values[j] - values[i]) / (x[j] - x[i]))
        fixed = float(values[i] - slope * x[i])
        if fixed >= 0 and slope >= 0:
            options.append((fixed, slope))
    return max(options, key=lambda line: line[0] + line[1] * at)
