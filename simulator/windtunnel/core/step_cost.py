"""The cost of steps of a serving engine on a group of devices, from the costs of their parts.

A group with pipeline stages divides the sequences of a step into as many microbatches as there are stages, if it has so
many. A step then takes the longer of one microbatch through all stages and of all microbatches through the slowest
stage; the first is longer if there are fewer microbatches than stages, so that stages idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Device, StrArray
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.step import Amount, DividedDecoder, Part

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepLoad:
    """What steps process; arrays of one shape (n,), one element for each step.

    Args:
        decode: Sequences that produce one token each.
        context: Tokens that each of them attends to, on average.
        prefill: Tokens of a prompt in the step; it is read as one prompt.
        prefill_context: Tokens of that prompt that earlier steps have processed.
    """

    decode: FloatArray
    context: FloatArray
    prefill: FloatArray
    prefill_context: FloatArray

    def amount(self, kind: Amount) -> FloatArray:
        """Return what a part is in proportion to; a step with a prompt is read as one that completes it."""
        if kind is Amount.TOKENS:
            return self.decode + self.prefill
        if kind is Amount.HEADS:
            return self.decode + (self.prefill > 0)
        return self.decode if kind is Amount.DECODING else self.prefill


@dataclass(frozen=True)
class PartCost:
    """A part of steps on one device over the whole depth: times and energies are arrays of shape (n,).

    ``above_idle_j`` is the energy above idle power of one device (J). ``bytes`` and ``flops`` are those of the operands
    and of the arithmetic.
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

    ``energy_j`` and ``power_w`` are sums over the devices of the group, idle power included.
    """

    duration_s: FloatArray
    duration_low_s: FloatArray
    duration_high_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    bound: StrArray
    provenance: int
    parts: Sequence[PartCost]
    devices: int = 1
    """The devices of the group."""


@dataclass(frozen=True)
class _Pricing:
    """What all parts have in common: their context, copies of the attention, and whether intervals are needed."""

    context: Mapping[str, str]
    copies: int
    intervals: bool


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
    stages = divided.group.pipeline
    micro = np.clip(
        np.maximum(load.decode, np.where(load.prefill > 0, np.ceil(load.prefill / 512.0), 0.0)), 1.0, stages
    )
    each = StepLoad(load.decode / micro, load.context, load.prefill / micro, load.prefill_context)
    pricing = _Pricing(context, divided.group.attention_data, intervals)
    parts = _merged([_cost(device, part, each, pricing) for part in divided.parts()])
    through_s = np.sum([part.duration_s for part in parts], axis=0)
    above_j = np.sum([part.above_idle_j for part in parts], axis=0)
    handover = divided.handover()
    if handover is not None:
        sent = _cost(device, handover, each, pricing)
        parts = [*parts, _times(sent, float(stages - 1))]
        through_s = through_s + parts[-1].duration_s
        above_j = above_j + parts[-1].above_idle_j
    depth = divided.model.layer_count
    slowest_s = through_s * (-(-depth // stages) / depth)
    duration_s = np.maximum(through_s, micro * slowest_s)
    ratio = duration_s / through_s
    below, above = _errors(parts)
    devices = divided.group.devices
    energy_j = devices * device.idle_power_w * duration_s + divided.group.stage_devices * micro * above_j
    return StepCost(
        duration_s=duration_s,
        duration_low_s=np.maximum(duration_s - ratio * below, 0.0),
        duration_high_s=duration_s + ratio * above,
        power_w=energy_j / duration_s,
        energy_j=energy_j,
        bound=_bound(parts, through_s),
        provenance=max(part.provenance for part in parts),
        parts=parts,
        devices=devices,
    )


def _cost(device: Device, part: Part, load: StepLoad, pricing: _Pricing) -> PartCost:
    """Return the cost of a part for every step; steps without its amount cost nothing."""
    amount = load.amount(part.amount)
    shape = amount.shape
    present = np.flatnonzero(amount > 0)
    if not len(present):
        zeros, empty = np.zeros(shape), np.full(shape, "")
        return PartCost(part.name, part.op.name, zeros, zeros, zeros, zeros, zeros, zeros, empty, 0)
    some = StepLoad(load.decode[present], load.context[present], load.prefill[present], load.prefill_context[present])
    share: FloatArray | float = 1.0
    if part.amount is Amount.PROMPTS:
        rows, share = _chunk(part, some, pricing.context, pricing.copies)
    else:
        attends = part.amount is Amount.DECODING and _cached(part)
        more = {"kv_tokens": _attended(part, some.context)} if attends else None
        rows = part.rows(amount[present], pricing.context, more)
    rows, which = _distinct(rows, len(present))
    cost = device.cost(rows, intervals=pricing.intervals)
    factor = part.times * share

    def whole(values: FloatArray) -> FloatArray:
        filled = np.zeros(shape)
        filled[present] = np.broadcast_to(values, rows.shape)[which] * factor
        return filled

    bound = np.full(shape, "", dtype=cost.bound.dtype)
    bound[present] = cost.bound[which]
    duration_s = whole(cost.duration_s)
    return PartCost(
        part.name,
        part.op.name,
        duration_s,
        whole(cost.duration_low_s) if pricing.intervals else duration_s,
        whole(cost.duration_high_s) if pricing.intervals else duration_s,
        whole(cost.duration_s * np.maximum(cost.power_w - device.idle_power_w, 0.0)),
        whole(_moved(rows)),
        whole(part.op.flops(rows.choices, rows.numbers)),
        bound,
        int(cost.provenance.max()),
    )


def _distinct(rows: Rows, count: int) -> tuple[Rows, IntArray]:
    """Return the distinct ones of ``count`` rows, and the index among them of each row; most columns are constant."""
    code = np.zeros(count, dtype=np.int64)
    for values in rows.numbers.values():
        if np.ndim(values):
            found, place = np.unique(values, return_inverse=True)
            # The codes so far are made dense, so that the product does not overflow.
            code = np.unique(code, return_inverse=True)[1] * len(found) + place
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    numbers = {name: values[first] if np.ndim(values) else values for name, values in rows.numbers.items()}
    return replace(rows, numbers=numbers), which


def _moved(rows: Rows) -> FloatArray:
    moved = rows.op.operand_bytes(rows.choices, rows.numbers)
    return moved if np.any(moved) else rows.numbers.get("bytes", np.zeros(rows.shape))


def _cached(part: Part) -> bool:
    return any(column.name == "kv_tokens" for column in part.op.columns)


def _attended(part: Part, context: FloatArray) -> FloatArray:
    tokens = np.maximum(np.rint(context), 1.0)
    return tokens if part.window is None else np.minimum(tokens, float(part.window))


def _chunk(part: Part, load: StepLoad, context: Mapping[str, str], copies: int) -> tuple[Rows, FloatArray]:
    """Return a prefill, and the share of its time that a chunk of a prompt takes.

    A chunk attends to what is cached. It is priced at the rate of the prefill that ends where it ends, by its share of
    the scores. Within a window of w tokens each query has at most w
    scores; the rate is then that of a prefill of two windows.
    """
    tokens = np.maximum(np.ceil(load.prefill / copies), 1.0)
    before = load.prefill_context
    until = before + tokens
    window = np.inf if part.window is None else float(part.window)
    priced = np.minimum(until, np.maximum(2.0 * window, tokens))
    share = (_scores(until, window) - _scores(before, window)) / (priced * (priced + 1.0) / 2.0)
    rows = part.rows(np.ones_like(tokens), context, {"kv_tokens": np.rint(priced), "batch": np.ones_like(tokens)})
    return rows, np.minimum(share, 1.0)


def _scores(tokens: FloatArray, window: float) -> FloatArray:
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


def _bound(parts: Sequence[PartCost], total_s: FloatArray) -> StrArray:
    """Return what most of the time of each step is bound by."""
    words = sorted({word for part in parts for word in set(part.bound.tolist()) if word})
    shares = np.stack([np.sum([np.where(p.bound == w, p.duration_s, 0.0) for p in parts], axis=0) for w in words])
    chosen: StrArray = np.array(words)[np.argmax(shares, axis=0)]
    return chosen
