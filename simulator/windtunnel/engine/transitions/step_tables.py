"""What a class of devices needs for continuous batching: the tables of step costs, and its serving engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.serving_engine import Admission
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.transitions.tables import Records


def write_engine(row: Records, costs: DecoderCosts) -> None:
    """Write what the serving engine of a class does."""
    times, engine = costs.times, costs.replica.engine
    row.decode_factor, row.prefill_factor, row.prompt_s = times.decode, times.prefill, costs.prompt_floor_s
    row.host_s, row.host_sequence_s = times.host_s, times.host_sequence_s
    row.most_tokens, row.most_sequences = costs.largest.tokens, costs.largest.sequences
    if engine is not None:
        row.alone, row.undivided = engine.prefill_first, not engine.chunked_prefill
        row.whole = engine.admission is Admission.WHOLE


def write_step_costs(row: Records, costs: DecoderCosts, add: Callable[[FloatArray], int]) -> None:
    """Write the tables of step costs of a class, which serves one model.

    ``add`` stores an array of numbers, and returns its offset.
    """
    row.state = costs.memory.state_tokens
    row.capacity = costs.capacity_tokens + row.state
    row.columns = costs.prefill.shape[2]
    row.linear, row.head = add(costs.flat("linear")), add(costs.flat("head"))
    row.prefill, row.decode = add(costs.flat("prefill")), add(costs.flat("decode"))
    row.kinds, row.windows = len(costs.windows), add(costs.windows)
    row.stages, row.copies, row.stage_share = costs.group.pipeline, costs.group.attention_data, costs.stage_share


def step_counts(classes: Records) -> np.ndarray:
    """Return no counts of steps yet, with room for the largest number of tokens or of sequences in a step."""
    largest = max(int(classes.most_tokens.max(initial=0)), int(classes.most_sequences.max(initial=0)))
    return np.zeros((len(classes), 2, 1 + largest), dtype=np.int64)
