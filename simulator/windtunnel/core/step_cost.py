"""The cost of steps of a serving engine on a group of devices, from the costs of their parts.

A group with pipeline stages divides the sequences of a step into as many microbatches as there are stages, if it has so
many. A step then takes the longer of one microbatch through all stages and of all microbatches through the slowest
stage; the first is longer if there are fewer microbatches than stages, so that stages idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.adapters import adapter_rows
from windtunnel.core.device import Cost, Device, StrArray
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.speculation import PASS_HOST_SHARE
from windtunnel.core.step import HANDOVER, Amount, DividedDecoder, Part

IntArray = npt.NDArray[np.int64]

MICROBATCH_TOKENS = 512
"""The prompt tokens from which a step is divided among pipeline stages (assumed: a common size of chunks)."""


@dataclass(frozen=True)
class StepLoad:
    """What steps process; arrays of one shape (n,), one element for each step.

    Args:
        decode: Sequences that produce one token each.
        context: Tokens that each of them attends to, on average.
        prefill: Tokens of a prompt in the step; it is read as one prompt.
        prefill_context: Tokens of that prompt that earlier steps have processed.
        adapters: LoRA adapters of the sequences; None without.
    """

    decode: FloatArray
    context: FloatArray
    prefill: FloatArray
    prefill_context: FloatArray
    adapters: FloatArray | None = None

    @property
    def producing(self) -> FloatArray:
        """Sequences that produce a token; a step with a prompt is read as one that completes it."""
        return self.decode + (self.prefill > 0)

    def amount(self, kind: Amount, query_tokens: int = 1, *, drafts: bool = False) -> FloatArray:
        """Return what a part is in proportion to.

        Each decoding sequence has ``query_tokens`` tokens, of which all give logits. A draft (``drafts``) gives those
        of one token of each of them, and none of prompts.
        """
        if kind is Amount.TOKENS:
            return self.decode * query_tokens + self.prefill
        if kind is Amount.HEADS:
            return self.decode if drafts else self.decode * query_tokens + (self.prefill > 0)
        return self.decode if kind is Amount.DECODING else self.prefill

    def of_part(self, part: Part, copies: int, query_tokens: int = 1, *, drafts: bool = False) -> FloatArray:
        """Return the amount of a part on a group with so many copies of the attention.

        A request is on one copy, and the others wait for it. So parts of a copy take as long as if every copy had a
        prompt of this length, while the experts have the tokens that there are.
        """
        if part.amount is Amount.TOKENS and not part.shared:
            return self.decode * query_tokens + copies * self.prefill
        return self.amount(part.amount, query_tokens, drafts=drafts)

    def working(self, part: Part, copies: int, query_tokens: int = 1) -> FloatArray:
        """Return the share of the copies that work in a part, on average over its time."""
        if part.amount is Amount.PROMPTS:
            return np.full(self.prefill.shape, 1.0 / copies)
        if part.amount is Amount.TOKENS and not part.shared:
            most = np.ceil(self.decode / copies) * query_tokens + self.prefill
            return (self.decode * query_tokens + self.prefill) / np.maximum(copies * most, 1e-9)
        return np.ones(self.prefill.shape)


@dataclass(frozen=True)
class PartCost:
    """A part of steps on one device over the whole depth: times and energies are arrays of shape (n,).

    ``above_idle_j`` is the energy above idle power of one device (J), on average over the copies of the attention.
    ``bytes`` and ``flops`` are those of the operands and of the arithmetic.
    """

    name: str
    op: str
    duration_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    above_idle_j: FloatArray
    bytes: FloatArray
    flops: FloatArray
    bound: StrArray
    provenance: int


@dataclass(frozen=True)
class StepCost:
    """The cost of steps on a group: arrays of shape (n,). Low and high are a 90% interval of the duration (s).

    ``energy_j`` and ``power_w`` are sums over the devices of the group, idle power included. A device that waits within
    a step, for the host or another stage, draws the power of an active device without work.
    """

    duration_s: FloatArray
    duration_low_s: FloatArray
    duration_high_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    bound: StrArray
    provenance: int
    parts: Sequence[PartCost]
    devices: int
    """The devices of the group."""
    microbatches: FloatArray
    """How many microbatches a step is divided into; ``parts`` are those of one."""
    host_s: FloatArray
    """Time of the host, in which no part runs."""


def step_cost(
    device: Device, divided: DividedDecoder, load: StepLoad, context: Mapping[str, str], *, intervals: bool = True
) -> StepCost:
    """Return the cost of steps.

    Args:
        device: One device of the group.
        divided: The decoder on the group.
        load: The steps.
        context: The context of the operations: ``dispatch``, ``clock``, ``cache``.
        intervals: Whether the interval is needed; if not, low and high equal the duration.

    Raises:
        UnsupportedOperationError: if the device does not run an operation of the decoder.
    """
    return step_costs(device, [StepTable(divided, load, context)], intervals=intervals)[0]


@dataclass(frozen=True)
class StepTable:
    """Steps of one decoder on one group, in one context."""

    divided: DividedDecoder
    load: StepLoad
    context: Mapping[str, str]


def step_costs(device: Device, tables: Sequence[StepTable], *, intervals: bool = True) -> list[StepCost]:
    """Return the cost of each table of steps; see ``step_cost``.

    Equal operations of all tables are priced once, and different ones of one kind together, so that many short tables
    take little longer than one long table.
    """
    micro = [_microbatches(table) for table in tables]
    asked = [_asked(table, size) for table, size in zip(tables, micro, strict=True)]
    whole = _priced(device, [some.rows for several in asked for some in several if some is not None], intervals)
    out = []
    for table, size, several in zip(tables, micro, asked, strict=True):
        costs = [_part_cost(device, table, some, next(whole)) for some in several if some is not None]
        out.append(_together(device, table, size, costs))
    return out


def _microbatches(table: StepTable) -> FloatArray:
    """Return the microbatches of each step: as many as stages, if there are so many sequences or parts of prompts."""
    load = table.load
    prompts = np.where(load.prefill > 0, np.ceil(load.prefill / MICROBATCH_TOKENS), 0.0)
    return np.clip(np.maximum(load.decode, prompts), 1.0, table.divided.group.pipeline)


def _together(device: Device, table: StepTable, micro: FloatArray, costs: Sequence[PartCost]) -> StepCost:
    """Return the cost of steps from those of their parts for one of ``micro`` microbatches."""
    divided, load = table.divided, table.load
    stages = divided.group.pipeline
    parts = [_times(part, float(stages - 1)) if part.name == HANDOVER else part for part in _merged(costs)]
    through_s = np.sum([part.duration_s for part in parts], axis=0)
    above_j = np.sum([part.above_idle_j for part in parts], axis=0)
    depth = divided.model.layer_count
    slowest_s = through_s * (-(-depth // stages) / depth)
    operations_s = np.maximum(through_s, micro * slowest_s)
    ratio = operations_s / through_s
    below, above = _errors(parts)
    host_s = _host_s(divided, load, operations_s)
    duration_s = operations_s + host_s
    devices = divided.group.devices
    busy_s = divided.group.stage_devices * micro * through_s
    energy_j = devices * device.idle_power_w * duration_s + divided.group.stage_devices * micro * above_j
    # Between the kernels of a step a device does not fall to idle power: it stays awake for the host and other stages.
    energy_j = energy_j + device.spin_power_w(0.0) * np.maximum(devices * duration_s - busy_s, 0.0)
    known = divided.times.provenance
    if divided.passes and divided.times.host_s:
        known = max(int(PASS_HOST_SHARE.provenance), known or 0)
    error = divided.times.error_factor
    return StepCost(
        duration_s=duration_s,
        duration_low_s=np.minimum(np.maximum(duration_s - ratio * below, 0.0), duration_s / error),
        duration_high_s=np.maximum(duration_s + ratio * above, duration_s * error),
        power_w=energy_j / duration_s,
        energy_j=energy_j,
        bound=_bound(parts, host_s / ratio),
        provenance=max([part.provenance for part in parts] + ([] if known is None else [known])),
        parts=parts,
        devices=devices,
        microbatches=micro,
        host_s=host_s,
    )


def _host_s(divided: DividedDecoder, load: StepLoad, operations_s: FloatArray) -> FloatArray:
    """Return the time of the host in which no operation runs (s), where the operations take ``operations_s``."""
    times = divided.times
    launches_s = np.where(load.prefill > 0, times.prompt_layer_s * divided.prompt_layers, 0.0)
    waiting_s = np.maximum(launches_s - operations_s, 0.0)
    return waiting_s + step_host_s(divided, load.decode) + times.host_sequence_s * load.producing


def step_host_s(divided: DividedDecoder, decoding: FloatArray) -> FloatArray:
    """Return the time of the host in steps with so many decoding sequences, without that of each sequence (s)."""
    drafting = np.where(decoding > 0, PASS_HOST_SHARE.value * divided.draft_passes, 0.0)
    return divided.times.host_s * (1.0 + drafting)


@dataclass(frozen=True)
class _Asked:
    """The rows of a part whose cost is needed: those at the indices ``present`` of a table take ``share`` of them.

    ``engine`` is the factor of the serving engine on their time, and ``working`` the share of the devices of a stage
    that work in the part, on average over its time.
    """

    part: Part
    rows: Rows
    present: IntArray
    share: FloatArray | float
    engine: FloatArray
    working: FloatArray | float = 1.0


def _asked(table: StepTable, micro: FloatArray) -> list[_Asked | None]:
    """Return what each part of a table asks for; None where no step has its amount."""
    divided, load = table.divided, table.load
    each = StepLoad(load.decode / micro, load.context, load.prefill / micro, load.prefill_context)
    handover = divided.handover()
    parts = [*divided.parts(), *([] if handover is None else [handover])]
    found = [_rows_of(part, load, each, micro, table, divided) for part in parts]
    found += _adapter_rows(table, each)
    for some in divided.passes:
        # Drafts have no pipeline stages, and so one microbatch.
        own = load if some.reads_prompts else replace(load, prefill=np.zeros_like(load.prefill))
        found += [_rows_of(part, own, own, micro, table, some.decoder, drafts=True) for part in some.parts()]
    return found


def _adapter_rows(table: StepTable, each: StepLoad) -> list[_Asked | None]:
    """Return what the adapters of sequences ask for, from the load of a microbatch."""
    divided, adapters = table.divided, table.load.adapters
    if adapters is None or not divided.adapter_rank:
        return []
    present = np.flatnonzero(adapters > 0)
    if not len(present):
        return []
    copies = divided.group.attention_data
    tokens = (each.decode * divided.query_tokens + copies * each.prefill)[present]
    engine = divided.times.factor(table.load.decode * divided.query_tokens, table.load.prefill)[present]
    rows = adapter_rows(divided, divided.adapter_rank, tokens, adapters[present], table.context)
    return [
        _Asked(Part(name, some.op, {}, Amount.TOKENS, times=times), some, present, 1.0, engine)
        for name, times, some in rows
    ]


def _rows_of(
    part: Part,
    whole: StepLoad,
    each: StepLoad,
    micro: FloatArray,
    table: StepTable,
    divided: DividedDecoder,
    *,
    drafts: bool = False,
) -> _Asked | None:
    """Return what a part asks for, from the load of whole steps and that of each of ``micro`` microbatches."""
    # A microbatch attends to the tokens of the prompt in those before it, so the scores of the whole chunk are divided.
    load = whole if part.amount is Amount.PROMPTS else each
    copies = divided.group.attention_data
    amount = load.of_part(part, copies, divided.query_tokens, drafts=drafts)
    present = np.flatnonzero(part.runs(amount))
    if not len(present):
        return None
    context = table.context
    some = StepLoad(load.decode[present], load.context[present], load.prefill[present], load.prefill_context[present])
    engine = _engine_factor(divided, whole, part, drafts=drafts)[present]
    # A draft may run on some of the devices of the stage only.
    working = whole.working(part, copies, divided.query_tokens)[present]
    working *= divided.group.stage_devices / table.divided.group.stage_devices
    if part.amount is Amount.PROMPTS:
        rows, share = _chunk(part, some, context)
        return _Asked(part, rows, present, share / micro[present], engine, working)
    attends = part.amount is Amount.DECODING and _cached(part)
    more = {"kv_tokens": _attended(part, some.context)} if attends else None
    return _Asked(part, part.rows(amount[present], context, more), present, 1.0, engine, working)


def _priced(device: Device, asked: Sequence[Rows], intervals: bool) -> Iterator[Cost]:
    """Yield the cost of each of several tables of operations."""
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    for place, rows in enumerate(asked):
        alike.setdefault((rows.op.name, tuple(sorted(rows.choices.items()))), []).append(place)
    costs: dict[int, Cost] = {}
    for places in alike.values():
        first = asked[places[0]]
        sizes = [asked[place].shape[0] for place in places]
        numbers = {
            name: np.concatenate([np.broadcast_to(asked[p].numbers[name], asked[p].shape) for p in places])
            for name in first.numbers
        }
        rows, which = _distinct(replace(first, numbers=numbers))
        cost = device.cost(rows, intervals=intervals)
        for place, index in zip(places, np.split(which, np.cumsum(sizes)[:-1]), strict=True):
            costs[place] = Cost(*(getattr(cost, name)[index] for name in Cost.COLUMNS))
    return (costs[place] for place in range(len(asked)))


def _part_cost(device: Device, table: StepTable, asked: _Asked, cost: Cost) -> PartCost:
    """Return the cost of a part for every step; steps without its amount cost nothing."""
    part, rows, factor, shape = asked.part, asked.rows, asked.part.times * asked.share, table.load.decode.shape
    # The engine's factor is on time and energy; the operands and the arithmetic stay.
    engine = asked.engine

    def whole(values: FloatArray) -> FloatArray:
        filled = np.zeros(shape)
        filled[asked.present] = values * factor
        return filled

    bound = np.full(shape, "", dtype=cost.bound.dtype)
    bound[asked.present] = cost.bound
    return PartCost(
        part.name,
        part.op.name,
        whole(engine * cost.duration_s),
        whole(engine * cost.duration_low_s),
        whole(engine * cost.duration_high_s),
        whole(asked.working * engine * cost.duration_s * np.maximum(cost.power_w - device.idle_power_w, 0.0)),
        whole(moved_bytes(rows)),
        whole(part.op.flops(rows.choices, rows.numbers)),
        bound,
        int(cost.provenance.max()),
    )


def _engine_factor(divided: DividedDecoder, load: StepLoad, part: Part, *, drafts: bool) -> FloatArray:
    """Return the factor of the serving engine on the time of a part in each step."""
    times = divided.times
    if part.amount is Amount.DECODING or (drafts and part.amount is Amount.HEADS):
        return np.full(load.decode.shape, times.decode)
    if part.amount is Amount.PROMPTS:
        return np.full(load.decode.shape, times.prefill)
    return times.factor(load.decode * divided.query_tokens, load.prefill)


def _distinct(rows: Rows) -> tuple[Rows, IntArray]:
    """Return the distinct ones of rows, and the index among them of each row."""
    code = np.zeros(rows.shape, dtype=np.int64)
    for values in rows.numbers.values():
        if np.all(values == values[0]):
            continue
        found, place = np.unique(values, return_inverse=True)
        code = code * len(found) + place
        # Dense codes keep the product from overflowing.
        code = np.unique(code, return_inverse=True)[1]
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return replace(rows, numbers={name: values[first] for name, values in rows.numbers.items()}), which


def moved_bytes(rows: Rows) -> FloatArray:
    """Return the bytes of the operands of operations, each read or written once, or those that an exchange sends."""
    moved = rows.op.operand_bytes(rows.choices, rows.numbers)
    return moved if np.any(moved) else rows.numbers.get("bytes", np.zeros(rows.shape))


def _cached(part: Part) -> bool:
    return any(column.name == "kv_tokens" for column in part.op.columns)


def _attended(part: Part, context: FloatArray) -> FloatArray:
    tokens = np.maximum(np.rint(context), 1.0)
    return tokens if part.window is None else np.minimum(tokens, float(part.window))


def _chunk(part: Part, load: StepLoad, context: Mapping[str, str]) -> tuple[Rows, FloatArray]:
    """Return a prefill, and the share of its time that a chunk of a prompt takes.

    A chunk attends to what is cached. It is priced at the rate of the prefill that ends where it ends, by its share of
    the scores. Within a window of w tokens each query has at most w
    scores; the rate is then that of a prefill of two windows.
    """
    tokens = np.maximum(np.ceil(load.prefill), 1.0)
    before = load.prefill_context
    until = before + tokens
    window = np.inf if part.window is None else float(part.window)
    priced = np.minimum(until, np.maximum(2.0 * window, tokens))
    share = (causal_scores(until, window) - causal_scores(before, window)) / (priced * (priced + 1.0) / 2.0)
    rows = part.rows(np.ones_like(tokens), context, {"kv_tokens": np.rint(priced), "batch": np.ones_like(tokens)})
    return rows, np.minimum(share, 1.0)


def causal_scores(tokens: FloatArray, window: float) -> FloatArray:
    """Return the causal scores of a prompt of so many tokens with a window."""
    inside = np.minimum(tokens, window)
    return inside * (inside + 1.0) / 2.0 + np.where(tokens > inside, (tokens - inside) * inside, 0.0)


def _merged(parts: Sequence[PartCost]) -> list[PartCost]:
    """Return parts of one name as one, because layers of several kinds have parts of the same name."""
    merged: dict[str, PartCost] = {}
    for part in parts:
        known = merged.get(part.name)
        merged[part.name] = part if known is None else _added(known, part)
    return list(merged.values())


def _added(a: PartCost, b: PartCost) -> PartCost:
    return PartCost(
        a.name,
        a.op,
        a.duration_s + b.duration_s,
        a.low_s + b.low_s,
        a.high_s + b.high_s,
        a.above_idle_j + b.above_idle_j,
        a.bytes + b.bytes,
        a.flops + b.flops,
        np.where(a.duration_s >= b.duration_s, a.bound, b.bound),
        max(a.provenance, b.provenance),
    )


def _times(part: PartCost, factor: float) -> PartCost:
    return replace(
        part,
        duration_s=factor * part.duration_s,
        low_s=factor * part.low_s,
        high_s=factor * part.high_s,
        above_idle_j=factor * part.above_idle_j,
        bytes=factor * part.bytes,
        flops=factor * part.flops,
    )


def _errors(parts: Sequence[PartCost]) -> tuple[FloatArray, FloatArray]:
    """Return how far the sum may lie below and above its value (s).

    One model prices all parts of an operation, so their errors add. Those of different operations are independent.
    """
    below: dict[str, FloatArray] = {}
    above: dict[str, FloatArray] = {}
    for part in parts:
        below[part.op] = below.get(part.op, 0.0) + (part.duration_s - part.low_s)
        above[part.op] = above.get(part.op, 0.0) + (part.high_s - part.duration_s)
    return (
        np.sqrt(np.sum([np.square(width) for width in below.values()], axis=0)),
        np.sqrt(np.sum([np.square(width) for width in above.values()], axis=0)),
    )


def _bound(parts: Sequence[PartCost], host_s: FloatArray) -> StrArray:
    """Return what most of the time of each step is bound by."""
    words = sorted({word for part in parts for word in set(part.bound.tolist()) if word})
    shares = [np.sum([np.where(p.bound == w, p.duration_s, 0.0) for p in parts], axis=0) for w in words]
    chosen: StrArray = np.array([*words, "host"])[np.argmax(np.stack([*shares, host_s]), axis=0)]
    return chosen
