"""What the completed steps of continuous batches did, as shares of the peak rates of their devices."""

from __future__ import annotations

import numpy as np

from windtunnel.core.recording import StepWork
from windtunnel.core.step import Amount, DraftPasses, Part
from windtunnel.core.step_cost import causal_scores, moved_bytes
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.decoder_tables import WITHOUT_WINDOW
from windtunnel.engine.prepare.decoding import DecoderCosts


def peak_times_s(costs: DecoderCosts, work: StepWork) -> tuple[float | None, float | None]:
    """Return for how long completed steps would occupy one replica at its peak rates (s); None where it has none.

    The first is that of the arithmetic, each part of a step at the peak of its number format, and the second one
    that of the operands, each read or written once at the bandwidth of the memory. Exchanges between devices are
    neither. A window of attention counts at the mean context of decoding sequences, and at the mean length of prompts.
    """
    bandwidth = costs.device.number("memory_bandwidth_bytes_per_s")
    flops_s: float | None = 0.0
    moved = 0.0
    parts: list[tuple[Part, DraftPasses | None]] = [(part, None) for part in costs.divided.parts()]
    parts += [(part, some) for some in costs.divided.passes for part in some.parts()]
    for part, drafts in parts:
        if part.link:
            continue
        flops, operands = _amounts(costs, part, work, drafts)
        moved += operands
        peak = _peak_flops_per_s(costs, str(part.values.get("dtype", "bfloat16")))
        flops_s = None if flops_s is None or (flops and peak is None) else flops_s + flops / (peak or 1.0)
    share = costs.group.stage_devices / costs.group.devices
    return (
        None if flops_s is None else flops_s * share,
        None if bandwidth is None else moved / bandwidth * share,
    )


def _amounts(costs: DecoderCosts, part: Part, work: StepWork, drafts: DraftPasses | None) -> tuple[float, float]:
    """Return the FLOP and the bytes of operands of a part in completed steps, on one device of each stage.

    What a draft does for each decoding sequence is counted with the sequences of the steps, which are those that
    produce tokens, less those that end a prompt.
    """
    one, attended = np.ones(1), 1.0
    window = WITHOUT_WINDOW if part.window is None else float(part.window)
    amounts: FloatArray
    more: dict[str, FloatArray] | None = None
    if part.amount in (Amount.TOKENS, Amount.HEADS):
        with_prompts = drafts is None or (drafts.reads_prompts and part.amount is Amount.TOKENS)
        counts = work.tokens if part.amount is Amount.TOKENS and with_prompts else work.heads
        amounts = (np.flatnonzero(counts[1:]) + 1).astype(np.float64)
        flops_of = moved_of = counts[1:][counts[1:] > 0].astype(np.float64)
        if not with_prompts:
            amounts = np.ceil(amounts / costs.query_tokens)
        runs = part.runs(amounts)
        amounts, flops_of, moved_of = amounts[runs], flops_of[runs], moved_of[runs]
    elif part.amount is Amount.DECODING:
        # So many that no copy of the attention has a part of one.
        amounts = one * (1024.0 * costs.group.attention_data)
        flops_of = moved_of = work.decoded / amounts
        attended = max(min(work.contexts / max(work.decoded, 1), window), 1.0)
    else:
        # The row is that of a whole prompt. A prompt of n tokens has n (n + 1) / 2 scores, windows aside.
        amounts, chunks = one, max(work.chunks, 1)
        attended = max(min(work.spans / chunks, window + work.prompt_tokens / chunks), 1.0)
        length = max(2.0 * work.scores / max(work.prompt_tokens, 1) - 1.0, 1.0)
        inside = _scores(length, window) / _scores(length)
        flops_of = one * (inside * work.scores / _scores(attended) / costs.group.attention_data)
        moved_of = one * (work.chunks / costs.group.attention_data)
    if not len(amounts):
        return 0.0, 0.0
    if any(column.name == "kv_tokens" for column in part.op.columns):
        more = {"kv_tokens": np.array([attended]), **({"batch": one} if part.amount is Amount.PROMPTS else {})}
    rows = part.rows(amounts, costs.context, more)
    flops = np.broadcast_to(part.op.flops(rows.choices, rows.numbers), amounts.shape)
    moved = np.broadcast_to(moved_bytes(rows), amounts.shape)
    times = part.times
    if drafts is not None:  # a draft may run on some of the devices of the stage only
        times *= drafts.decoder.group.stage_devices / costs.group.stage_devices
    return times * float(flops @ flops_of), times * float(moved @ moved_of)


def _peak_flops_per_s(costs: DecoderCosts, dtype: str) -> float | None:
    """Return the peak arithmetic of a device in a format; formats of weights alone compute in 16 bits."""
    names = [dtype.removesuffix("_block"), "bfloat16", "float16"]
    known = (costs.device.number("matrix_flops_per_s", name) for name in names)
    return next((rate for rate in known if rate), costs.device.number("vector_flops_per_s", "float32"))


def _scores(tokens: float, window: float = WITHOUT_WINDOW) -> float:
    """Return what ``causal_scores`` does for one prompt."""
    return float(causal_scores(np.array([tokens]), window)[0])
