"""What one step of a decoder costs on a device: tables over tokens, sequences and context, made once a class.

A step takes some sequences one token further and may take a chunk of a prompt with it. Its linear part depends
on the tokens in the step, its attention on each sequence's context. Both come from the device's own cost model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import Sourced
from windtunnel.core.ticks import FloatArray
from windtunnel.scenario.decoder import Decoder, OpCount

CONTEXT_GRAIN = 64
"""Attention is tabulated at multiples of so many tokens and interpolated between."""


class DecoderCostCache:
    """The tables of every model on one device, made when first asked for.

    ``longest``: each model's longest context over all workloads; ``most_tokens``, ``most_sequences``: of one step.
    """

    def __init__(
        self, device: Device, models: Mapping[str, Decoder], longest: Mapping[str, int], most: tuple[int, int]
    ) -> None:
        self._device = device
        self._models = models
        self._longest = longest
        self._most = most
        self._made: dict[str, DecoderCosts] = {}

    def __getitem__(self, model: str) -> DecoderCosts:
        if model not in self._made:
            tokens, sequences = self._most
            self._made[model] = _costs(self._device, self._models[model], tokens, sequences, self._longest[model])
        return self._made[model]


_KEPT = 16
_known: dict[tuple[object, ...], DecoderCosts] = {}


def _costs(device: Device, model: Decoder, tokens: int, sequences: int, longest: int) -> DecoderCosts:
    """The tables, kept for the next simulation of the same device: a plan simulates tens of fleets of a few SKUs."""
    key = (
        *(device.spec.sku, device.spec.vendor, device.spec.lineage, device.api.name, device.speed, device.cap_w),
        # Everything that a cost may depend on; `found.device` keeps the residuals, and so their identities, alive.
        *((name, sourced.value) for values in (device.values, device.api.values) for name, sourced in values.items()),
        *((op, id(residual)) for op, residual in device.residuals.items()),
        *(id(device.kind), model, tokens, sequences, longest),
    )
    found = _known.pop(key, None)
    if found is None:
        found = DecoderCosts(device, model, tokens, sequences, longest)
        while len(_known) >= _KEPT:
            _known.pop(next(iter(_known)))
    _known[key] = found
    return found


class DecoderCosts:
    """Durations (s) and energies above idle (J) of a decoder's steps on one device.

    ``most_tokens``: the most tokens of one step; ``most_sequences``: the most sequences of one step;
    ``longest``: the longest context, prompt and output together.
    """

    def __init__(self, device: Device, model: Decoder, most_tokens: int, most_sequences: int, longest: int) -> None:
        self.device = device
        self.model = model
        self._flat: dict[str, FloatArray] = {}
        for op in ("gemm", "attention", "elementwise"):
            if not device.runs(op):
                raise UnsupportedOperationError(
                    f"{device.label} is a {device.kind.name}, which does not run {op} and so no decoder"
                )
        tokens = np.arange(1, most_tokens + 1, dtype=np.float64)
        linear = np.zeros((2, most_tokens + 1))
        for part in model.linear_operations():
            column = "m" if part.op.name == "gemm" else "rows"
            linear[:, 1:] += self._cost(part, {column: tokens})
        # Arrays of (seconds, joules); index 0 is no tokens, which costs nothing.
        self.linear = linear
        sequences = np.arange(1, most_sequences + 1, dtype=np.float64)
        self.head = np.zeros((2, most_sequences + 1))
        self.head[:, 1:] = self._cost(model.head_operation(), {"m": sequences})
        grid = np.arange(0, longest + 2 * CONTEXT_GRAIN, CONTEXT_GRAIN, dtype=np.float64)
        grid[0] = 1.0
        self.prefill = self._cost(model.attention_operation("prefill"), {"batch": np.ones(1), "kv_tokens": grid})
        self.prefill = np.maximum.accumulate(self.prefill, axis=1)
        self.decode = np.zeros((2, most_sequences + 1, len(grid)))
        self.decode[:, 1:, :] = self._cost(
            model.attention_operation("decode"), {"batch": sequences[:, None], "kv_tokens": grid[None, :]}
        )

    @cached_property
    def _parts(self) -> list[OpCount]:
        model = self.model
        return [*model.linear_operations(), model.head_operation(), model.attention_operation("decode")]

    @property
    def operations(self) -> frozenset[str]:
        """The operations that a step consists of."""
        return frozenset(part.op.name for part in self._parts)

    @cached_property
    def sources(self) -> Mapping[str, Sourced]:
        """Every number that enters the costs, by name."""
        found: dict[str, Sourced] = {}
        for part in self._parts:
            column = {"gemm": ("m",), "elementwise": ("rows",)}.get(part.op.name, ("batch", "kv_tokens"))
            complete = part.op.complete(part.values | dict.fromkeys(column, 1))
            words = {k: v for k, v in complete.items() if isinstance(v, str)}
            numbers = {k: np.array([v]) for k, v in complete.items() if not isinstance(v, str)}
            found.update(self.device.sources(Rows(part.op, words, numbers)))
        return found

    def flat(self, table: str) -> FloatArray:
        """One of the tables as a row of numbers, the seconds before the joules; always the same array."""
        if table not in self._flat:
            self._flat[table] = np.ascontiguousarray(getattr(self, table)).reshape(-1)
        return self._flat[table]

    @property
    def weight_bytes(self) -> float:
        """Memory that the weights take (bytes)."""
        return self.model.weight_bytes

    def cache_tokens(self, share: float) -> int:
        """Tokens whose keys and values fit beside the weights in ``share`` of the device's memory; below 1: none."""
        room = self.device.memory_bytes * share - self.model.weight_bytes
        return int(min(max(room, 0.0) / self.model.kv_bytes_per_token, 2.0**53))

    def linear_and_decode(self, decoding: int, context: float, read: int, ends_prompts: int) -> tuple[float, float]:
        """(seconds, joules above idle) of one step but for its prompts' own attention.

        ``decoding`` sequences with ``context`` tokens in all take a token each; ``read`` prompt tokens join them
        and finish ``ends_prompts`` prompts, each of which makes a token too.
        """
        tokens, heads = decoding + read, decoding + ends_prompts
        seconds = self.linear[0, tokens] + self.head[0, heads]
        joules = self.linear[1, tokens] + self.head[1, heads]
        if decoding:
            s, j = self._between(self.decode[:, decoding], context / decoding)
            seconds, joules = seconds + s, joules + j
        return float(seconds), float(joules)

    def prompt_attention(self, start: int, chunk: int) -> tuple[float, float]:
        """Attention of ``chunk`` prompt tokens from ``start`` on: a prompt up to their end, less one up to their start.

        The difference of two causal prefills has exactly the scores of the chunk. Where the longer takes hardly more
        time but draws more power, the difference in energy is held at what the device can draw in that time.
        """
        until = self._between(self.prefill, start + chunk)
        if not start:
            return until
        before = self._between(self.prefill, start)
        seconds = max(until[0] - before[0], 0.0)
        most = seconds * (self.device.power_limit_w - self.device.idle_power_w)
        return seconds, min(max(until[1] - before[1], 0.0), most)

    def alone(self, prompts: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(first-token s, whole s, first-token J, whole J) of requests served one at a time; arrays of one shape."""
        most = self.linear.shape[1] - 1
        whole_chunks, rest = np.divmod(prompts.astype(np.int64), most)
        linear = self.linear[:, rest] + whole_chunks * self.linear[:, most][:, None]
        grid = np.arange(self.prefill.shape[1]) * float(CONTEXT_GRAIN)
        grid[0] = 1.0
        first = np.stack([linear[i] + self.head[i, 1] + np.interp(prompts, grid, self.prefill[i]) for i in (0, 1)])
        # Every later token passes through all layers alone, with a context that grows by one each time.
        total = np.empty_like(first)
        for i in (0, 1):
            positions = np.arange(1, self.decode.shape[2] * CONTEXT_GRAIN)
            each = np.interp(positions, grid, self.decode[i, 1])
            running = np.concatenate([[0.0, 0.0], np.cumsum(each)])
            start = np.minimum(prompts.astype(np.int64) + 1, len(running) - 1)
            stop = np.minimum((prompts + outputs).astype(np.int64), len(running) - 1)
            steps = np.maximum(outputs - 1, 0)
            total[i] = first[i] + steps * (self.linear[i, 1] + self.head[i, 1]) + (running[stop] - running[start])
        return first[0], total[0], first[1], total[1]

    def _between(self, table: FloatArray, context: float) -> tuple[float, float]:
        place = context / CONTEXT_GRAIN
        low = int(place)
        weight = place - low
        seconds, joules = table
        high = low + 1
        return (
            float(seconds[low] + (seconds[high] - seconds[low]) * weight),
            float(joules[low] + (joules[high] - joules[low]) * weight),
        )

    def _cost(self, part: OpCount, numbers: dict[str, FloatArray]) -> FloatArray:
        """Stacked (seconds, joules above idle) of an operation over the open columns, times its count."""
        complete = part.op.complete(part.values | dict.fromkeys(numbers, 1))
        rows = Rows(
            part.op,
            {key: value for key, value in complete.items() if isinstance(value, str)},
            {key: np.asarray(value, dtype=np.float64) for key, value in complete.items() if not isinstance(value, str)}
            | numbers,
        )
        cost = self.device.cost(rows, intervals=False)
        above_idle = np.maximum(cost.power_w - self.device.idle_power_w, 0.0)
        return part.times * np.stack([cost.duration_s, cost.duration_s * above_idle])
