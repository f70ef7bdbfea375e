"""The text of a predicted step: its total, and tables by kind of operation and by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windtunnel.core.ops import CONTEXT, Rows
from windtunnel.core.results.catalogue import StepPart, StepPrediction
from windtunnel.core.units import format_quantity as show
from windtunnel.report.numbers import plural

_KINDS = {
    "gemm": "GEMM",
    "moe": "experts (moe)",
    "attention": "attention",
    "latent_attention": "attention (latent)",
    "kernel": "memory-bound kernels",
    "host": "host",
}


def _speculation(numbers: Mapping[str, float], draft: str) -> str:
    """Return what a step verifies of each sequence, and what drafts it; empty for a single token."""
    drafted = int(numbers["query_tokens"]) - 1
    by = f", drafted by {draft}" if draft else ""
    return f"each verifies {plural(drafted, 'drafted token')}{by}" if drafted else ""


def step_lines(device: str, rows: Rows, cost: StepPrediction) -> list[str]:
    """Return the lines on the whole step."""
    numbers = {name: float(values[0]) for name, values in rows.numbers.items()}
    work = [
        f"{numbers['decode']:,.0f} sequences decode with a context of {numbers['context']:,.0f}"
        * (numbers["decode"] > 0),
        _speculation(numbers, rows.choices["draft"]) * (numbers["decode"] > 0),
        f"{plural(int(numbers['adapters']), 'adapter')} of rank {numbers['rank']:,.0f}" * (numbers["adapters"] > 0),
        f"{numbers['prefill']:,.0f} tokens of a prompt after {numbers['prefill_context']:,.0f}"
        * (numbers["prefill"] > 0),
    ]
    spread = f"90% interval {show(cost.duration_low_s, 's')} to {show(cost.duration_high_s, 's')}"
    context = ", ".join(f"{column.name} {rows.choices[column.name]}" for column in CONTEXT)
    group = "1 device" if cost.devices == 1 else f"a group of {cost.devices} devices"
    exchanged = [part for part in cost.parts if part.op not in _KINDS]
    exchange_s = sum(part.duration_s for part in exchanged)
    whole_s = sum(part.duration_s for part in cost.parts)
    lines = [
        f"step of {rows.choices['model']} on {group} {device}: {show(cost.duration_s, 's')}  ({spread})",
        f"  work     {'; '.join(filter(None, work))}",
        f"  context  {context}",
        f"  power    {show(cost.power_w, 'W')} of all devices",
        f"  energy   {show(cost.energy_j, 'J')} of all devices",
        "  tables   time, bytes and FLOPs of each device",
        f"  bound    {cost.bound}",
    ]
    if exchanged:
        lines.append(f"  exchange {show(exchange_s, 's')} of collectives, {exchange_s / whole_s:.0%} of the time")
    return [*lines, f"  least certain input: {cost.provenance} (of time and power together)"]


def operation_rows(cost: StepPrediction) -> list[list[str]]:
    """Return a row for each kind of operation: name, time, share, bytes, FLOPs, and what binds most of its time."""
    kinds: dict[str, list[StepPart]] = {}
    for part in cost.parts:
        kinds.setdefault(_KINDS.get(part.op, part.op), []).append(part)
    whole_s = sum(part.duration_s for part in cost.parts)
    totals = [(name, sum(p.duration_s for p in parts), parts) for name, parts in kinds.items()]
    return [
        [name, *_amounts(parts, whole_s), _bound(parts)]
        for name, _, parts in sorted(totals, key=lambda total: -total[1])
    ]


def part_rows(cost: StepPrediction) -> list[list[str]]:
    """Return a row for each part, in the order of a layer: name, operation, time, share, bytes, FLOPs, bound."""
    whole_s = sum(part.duration_s for part in cost.parts)
    return [[part.part, part.op, *_amounts([part], whole_s), part.bound] for part in cost.parts]


def _amounts(parts: Sequence[StepPart], whole_s: float) -> list[str]:
    seconds, moved, flops = (sum(getattr(p, name) for p in parts) for name in ("duration_s", "bytes", "flops"))
    return [
        show(seconds, "s"),
        f"{seconds / whole_s:.1%}",
        show(moved, "B") if moved else "",
        show(flops, "FLOP") if flops else "",
    ]


def _bound(parts: Sequence[StepPart]) -> str:
    words: dict[str, float] = {}
    for part in parts:
        words[part.bound] = words.get(part.bound, 0.0) + part.duration_s
    return max(words, key=lambda word: words[word])
