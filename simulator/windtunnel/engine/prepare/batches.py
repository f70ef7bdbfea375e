"""The cost of request-level batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import Rows
from windtunnel.core.ticks import FloatArray, to_ticks
from windtunnel.engine.prepare.programs import WATT_GRAIN, Compiled, round_power
from windtunnel.engine.prepare.source import Source
from windtunnel.scenario.program import ColumnRef, OpStage, Stage


@dataclass(frozen=True)
class BatchTable:
    """Seconds and watts above idle of request-level batches of 1, 2, ... jobs of a workload; shape (size,).

    If ``drawn``, the time is multiplied by the largest random factor of the batch's jobs.
    """

    seconds: FloatArray
    watts: FloatArray
    drawn: bool


def batch_table(program: Sequence[Stage], device: Device, source: Source, size: int) -> BatchTable | None:
    """Return the table of batches of up to ``size`` jobs; None if the cost depends on more than their number.

    Columns in an operation's ``sums`` are added over the jobs, and the others stay as they are. Operations without such
    columns run one after another. Stated times run in parallel, so the longest counts.
    """
    stages = [stage for stage in program if isinstance(stage, OpStage)]
    columns = any(isinstance(value, ColumnRef) for stage in stages for value in stage.numbers.values())
    drawn = [s for s in stages if s.op.name == "service" and s.choices["distribution"] != "deterministic"]
    if len(stages) < len(program) or columns or (drawn and len(stages) > 1):
        return None
    counts = np.arange(1, size + 1, dtype=np.float64)
    seconds, joules = np.zeros(size), np.zeros(size)
    for stage in stages:
        numbers = {
            key: counts * value if key in stage.op.sums else np.full(1, value, dtype=np.float64)
            for key, value in stage.numbers.items()
            if not isinstance(value, ColumnRef)
        }
        cost = device.cost(Rows(stage.op, stage.choices_on(device), numbers), intervals=False)
        time_s = np.broadcast_to(cost.duration_s, (size,))
        if stage.op.name != "service" and not stage.op.sums:
            time_s = time_s * counts
        seconds = seconds + time_s
        joules = joules + time_s * np.maximum(cost.power_w - device.idle_power_w, 0.0)
    watts = np.divide(joules, seconds, out=np.zeros(size), where=seconds > 0)
    return BatchTable(seconds, np.rint(watts / WATT_GRAIN) * WATT_GRAIN, bool(drawn))


@dataclass(frozen=True)
class BatchCost:
    """The cost of one request-level batch."""

    ticks: int
    watts: float
    """Power above idle (W)."""
    first_ticks: int
    """The time to the first token; 0 if the jobs do not generate."""
    operations: Sequence[tuple[str, float]]
    """The operations that run one after another, with their times (s)."""


def batch_cost(
    program: Sequence[Stage], device: Device, source: Source, ranks: Sequence[int], compiled: Compiled
) -> BatchCost:
    """Return the cost of a batch of different jobs.

    The rules are those of ``batch_table``; of columns that are not summed the largest value counts.

    Raises:
        UnsupportedOperationError: if the program has other stages than operations.
    """
    if compiled.decoder is not None:
        return _batch_generate(compiled, ranks)
    seconds = joules = 0.0
    operations: list[tuple[str, float]] = []
    idle = device.idle_power_w
    index = np.asarray(ranks)
    for stage in program:
        if not isinstance(stage, OpStage):
            raise UnsupportedOperationError(
                "request-level batching supports only programs of operations", where=source.where(stage.path)
            )
        numbers: dict[str, FloatArray] = {}
        for key, value in stage.numbers.items():
            column = source.value(value, (*stage.path, key))
            values = column[index] if len(column) > 1 else np.repeat(column, len(index))
            numbers[key] = np.array([values.sum() if key in stage.op.sums else values.max()])
        cost = device.cost(Rows(stage.op, stage.choices_on(device), numbers), intervals=False)
        time_s, power_w = float(cost.duration_s[0]), float(cost.power_w[0])
        if stage.op.name == "service":
            time_s *= float(source.variates(stage).values[index].max())
        elif not stage.op.sums:
            time_s *= len(ranks)
        operations.append((stage.op.name, time_s))
        seconds += time_s
        joules += time_s * max(power_w - idle, 0.0)
    return BatchCost(to_ticks(seconds), round_power(joules / seconds) if seconds else 0.0, 0, operations)


def _batch_generate(compiled: Compiled, ranks: Sequence[int]) -> BatchCost:
    """Return the cost of a static batch: all prompts, then steps of the whole batch until the longest output ends."""
    costs, prompts, outputs = compiled.decoder, compiled.prompts, compiled.outputs
    assert costs is not None and prompts is not None and outputs is not None  # noqa: S101
    size = len(ranks)
    seconds, joules = costs.reading([int(prompts[rank]) for rank in ranks])
    first = to_ticks(seconds)
    context = float(sum(prompts[rank] for rank in ranks))
    for _ in range(int(max(outputs[r] for r in ranks)) - 1):
        context += size
        s, j = costs.step(size, context, (), 0)
        seconds, joules = seconds + s, joules + j
    return BatchCost(to_ticks(seconds), round_power(joules / seconds), first, [("generate", seconds)])
