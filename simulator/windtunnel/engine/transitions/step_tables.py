"""What continuous batching needs: for each class the tables of step costs and its serving engine, and acceptance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windtunnel.core.rng import key_words
from windtunnel.core.serving_engine import Admission
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.transitions.tables import ADAPTER, Records, records


def write_engine(row: Records, costs: DecoderCosts) -> None:
    """Write what the serving engine of a class does."""
    times, engine = costs.times, costs.replica.engine
    row.decode_factor, row.prefill_factor, row.prompt_s = times.decode, times.prefill, costs.prompt_floor_s
    row.host_s, row.host_sequence_s = times.host_s, times.host_sequence_s
    row.queries, row.drafting_s = costs.query_tokens, costs.drafting_host_s
    row.most_tokens, row.most_sequences = costs.largest.tokens, costs.largest.sequences
    if engine is not None:
        row.alone, row.undivided = engine.prefill_first, not engine.chunked_prefill
        row.whole = engine.admission is Admission.WHOLE
        row.frontend_s, row.late_prompts = engine.frontend_s.value, engine.late_prompts.value


def write_step_costs(row: Records, costs: DecoderCosts, add: Callable[[FloatArray], int]) -> None:
    """Write the tables of step costs of a class, which serves one model.

    ``add`` stores an array of numbers, and returns its offset.
    """
    row.state = costs.memory.state_tokens
    row.capacity = costs.capacity_tokens + row.state
    row.columns = costs.prefill.shape[2]
    row.linear, row.head = add(costs.flat("linear")), add(costs.flat("head"))
    row.copy = add(costs.flat("copy")) if costs.group.attention_data > 1 else 0
    row.prefill, row.decode = add(costs.flat("prefill")), add(costs.flat("decode"))
    adapters = costs.served.adapters
    if adapters is not None:
        row.slots, row.host = adapters.slots, adapters.host if adapters.storage_bytes_s else 0
        row.adapted = add(costs.flat("adapted"))
        row.load_adapter_s, row.read_adapter_s = costs.adapter_load_s, costs.adapter_read_s
    row.kinds, row.windows = len(costs.windows), add(costs.windows)
    row.stages, row.copies, row.stage_share = costs.group.pipeline, costs.group.attention_data, costs.stage_share
    row.awake_w = costs.awake_w


def write_adapters(
    prepared: PreparedRun, r: Records, classes: Records, workloads: Records, add: Callable[[np.ndarray], int]
) -> Records:
    """Write the adapters of all jobs with ``add``, which stores an array of whole numbers; return the places."""
    workloads.adapters = -1
    if not prepared.adapting:
        return records(0, ADAPTER)
    for (_, work), compiled in prepared.compiled.items():
        if compiled.adapters is not None and workloads[work].adapters < 0:
            workloads[work].adapters = add(compiled.adapters)
    r.adapting, r.adapter_places = 1, int((classes.slots + classes.host).max())
    return records(prepared.device_count * int(r.adapter_places), ADAPTER)


def write_acceptance(
    prepared: PreparedRun,
    workloads: Records,
    add_int: Callable[[np.ndarray], int],
    add: Callable[[FloatArray], int],
) -> np.ndarray:
    """Write how drafted tokens of each workload are accepted; return the counts of accepted ones.

    The functions store an array of whole numbers and of numbers, and return its offset.
    """
    most = prepared.drafted_tokens
    decoders = {work: c.decoder for (_, work), c in prepared.compiled.items() if most and c.decoder is not None}
    for work, costs in decoders.items():
        speculation = costs.served.speculation
        if speculation is not None:
            name = prepared.workloads[work].workload.name
            words = key_words(prepared.scenario.seed, "acceptance", name)
            workloads[work].draft_keys = add_int(np.array(words, dtype=np.int64))
            workloads[work].reached = add(speculation.reached)
    return np.zeros((len(prepared.workloads) if most else 0, most + 1), dtype=np.int64)


def step_counts(classes: Records) -> np.ndarray:
    """Return no counts of steps yet, with room for the largest number of tokens or of sequences in a step."""
    positions = classes.most_sequences * np.maximum(classes.queries, 1)
    largest = max(int(classes.most_tokens.max(initial=0)), int(positions.max(initial=0)))
    return np.zeros((len(classes), 2, 1 + largest), dtype=np.int64)
