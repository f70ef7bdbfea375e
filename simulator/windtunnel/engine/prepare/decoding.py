"""The cost of one step of a decoder on a device, as tables over tokens, sequences and context.

A step produces one token for each decoding sequence and may process a chunk of prompts. The cost of its linear layers
depends on the tokens in the step, and that of attention on the context of each sequence. The cost model of the device
gives both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import UnsupportedOperationError
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.ticks import FloatArray
from windtunnel.scenario.decoder import Decoder, OpCount

CONTEXT_GRAIN = 64
"""The distance in tokens between the points of the attention tables; values between them are interpolated."""


class DecoderCostCache:
    """The step costs of every model on one device, computed at their first use.

    ``longest`` has the longest context of each model over all workloads, and ``limits`` the largest numbers of tokens
    and of sequences in one step.
    """

    def __init__(
        self, device: Device, models: Mapping[str, Decoder], longest: Mapping[str, int], limits: tuple[int, int]
    ) -> None:
        self._device = device
        self._models = models
        self._longest = longest
        self._limits = limits
        self._costs: dict[str, DecoderCosts] = {}

    def __getitem__(self, model: str) -> DecoderCosts:
        if model not in self._costs:
            tokens, sequences = self._limits
            self._costs[model] = _costs(self._device, self._models[model], tokens, sequences, self._longest[model])
        return self._costs[model]


_CACHE_SIZE = 16
_cache: dict[tuple[object, ...], DecoderCosts] = {}


def _costs(device: Device, model: Decoder, tokens: int, sequences: int, longest: int) -> DecoderCosts:
    """Return the tables from a cache, because a plan simulates many fleets of a few SKUs."""
    key = (
        *(device.spec.sku, device.spec.vendor, device.spec.lineage, device.api.name, device.speed, device.cap_w),
        # Everything that a cost depends on. `costs.device` keeps the residuals alive, and so their identities unique.
        *((name, sourced.value) for values in (device.values, device.api.values) for name, sourced in values.items()),
        *((op, id(residual)) for op, residual in device.residuals.items()),
        *(id(device.kind), model, tokens, sequences, longest),
    )
    costs = _cache.pop(key, None)
    if costs is None:
        costs = DecoderCosts(device, model, tokens, sequences, longest)
        while len(_cache) >= _CACHE_SIZE:
            _cache.pop(next(iter(_cache)))
    _cache[key] = costs
    return costs


class DecoderCosts:
    """Durations (s) and energies above idle (J) of the steps of a decoder on one device.

    Each table has the seconds at index 0 and the joules at index 1 of its first axis.

    Args:
        device: The device model.
        model: The decoder.
        max_tokens: The largest number of tokens in one step.
        max_sequences: The largest number of sequences in one step.
        longest: The longest context: prompt and output together (tokens).

    Raises:
        UnsupportedOperationError: if the device does not execute an operation of the decoder.
    """

    def __init__(self, device: Device, model: Decoder, max_tokens: int, max_sequences: int, longest: int) -> None:
        self.device = device
        self.model = model
        self._flat: dict[str, FloatArray] = {}
        for op in ("gemm", "attention", "elementwise"):
            if not device.runs(op):
                raise UnsupportedOperationError(
                    f"{device.label} is a {device.kind.name}, which does not execute {op}, as every decoder does"
                )
        tokens = np.arange(1, max_tokens + 1, dtype=np.float64)
        linear = np.zeros((2, max_tokens + 1))
        for part in model.linear_operations():
            column = "m" if part.op.name == "gemm" else "rows"
            linear[:, 1:] += self._cost(part, {column: tokens})
        # Index 0 of the second axis represents zero tokens, which cost nothing.
        self.linear = linear
        sequences = np.arange(1, max_sequences + 1, dtype=np.float64)
        self.head = np.zeros((2, max_sequences + 1))
        self.head[:, 1:] = self._cost(model.head_operation(), {"m": sequences})
        grid = np.arange(0, longest + 2 * CONTEXT_GRAIN, CONTEXT_GRAIN, dtype=np.float64)
        grid[0] = 1.0
        self.prefill = self._cost(model.attention_operation("prefill"), {"batch": np.ones(1), "kv_tokens": grid})
        self.prefill = np.maximum.accumulate(self.prefill, axis=1)
        self.decode = np.zeros((2, max_sequences + 1, len(grid)))
        self.decode[:, 1:, :] = self._cost(
            model.attention_operation("decode"), {"batch": sequences[:, None], "kv_tokens": grid[None, :]}
        )

    @cached_property
    def _parts(self) -> list[OpCount]:
        model = self.model
        return [*model.linear_operations(), model.head_operation(), model.attention_operation("decode")]

    @property
    def operations(self) -> frozenset[str]:
        """The names of the operations in a step."""
        return frozenset(part.op.name for part in self._parts)

    @cached_property
    def sources(self) -> Mapping[str, SourcedValue]:
        """Every number on which the costs depend, by name."""
        sources: dict[str, SourcedValue] = {}
        for part in self._parts:
            column = {"gemm": ("m",), "elementwise": ("rows",)}.get(part.op.name, ("batch", "kv_tokens"))
            complete = part.op.complete(part.values | dict.fromkeys(column, 1))
            words = {k: v for k, v in complete.items() if isinstance(v, str)}
            numbers = {k: np.array([v]) for k, v in complete.items() if not isinstance(v, str)}
            sources.update(self.device.sources(Rows(part.op, words, numbers)))
        return sources

    def flat(self, table: str) -> FloatArray:
        """Return a table as a contiguous array of shape (n,), seconds before joules; always the same object."""
        if table not in self._flat:
            self._flat[table] = np.ascontiguousarray(getattr(self, table)).reshape(-1)
        return self._flat[table]

    @property
    def weight_bytes(self) -> float:
        """The memory of the weights (bytes)."""
        return self.model.weight_bytes

    def cache_tokens(self, share: float) -> int:
        """Return how many tokens of KV cache fit beside the weights into ``share`` of the device's memory."""
        free_bytes = self.device.memory_bytes * share - self.model.weight_bytes
        return int(min(max(free_bytes, 0.0) / self.model.kv_bytes_per_token, 2.0**53))

    def linear_and_decode(self, decoding: int, context: float, read: int, ends_prompts: int) -> tuple[float, float]:
        """Return seconds and joules above idle of one step, without the attention of prompts.

        Args:
            decoding: The number of sequences that produce one token each.
            context: The sum of their contexts (tokens).
            read: The number of prompt tokens in the step.
            ends_prompts: The number of prompts that the step completes, each of which produces its first token.
        """
        tokens, heads = decoding + read, decoding + ends_prompts
        seconds = self.linear[0, tokens] + self.head[0, heads]
        joules = self.linear[1, tokens] + self.head[1, heads]
        if decoding:
            s, j = self._between(self.decode[:, decoding], context / decoding)
            seconds, joules = seconds + s, joules + j
        return float(seconds), float(joules)

    def prompt_attention(self, start: int, chunk: int) -> tuple[float, float]:
        """Return seconds and joules above idle of the attention of ``chunk`` prompt tokens from ``start`` on.

        It is the difference of two causal prefills, up to the end and up to the start of the chunk, which has exactly
        the scores of the chunk. The energy is at most what the device can draw in that time.
        """
        until = self._between(self.prefill, start + chunk)
        if not start:
            return until
        before = self._between(self.prefill, start)
        seconds = max(until[0] - before[0], 0.0)
        max_j = seconds * (self.device.power_limit_w - self.device.idle_power_w)
        return seconds, min(max(until[1] - before[1], 0.0), max_j)

    def alone(self, prompts: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the costs of requests that are served one at a time; arrays of the shape of ``prompts``.

        Returns:
            The seconds until the first token, the seconds in total, and the joules above idle of both.
        """
        most = self.linear.shape[1] - 1
        whole_chunks, rest = np.divmod(prompts.astype(np.int64), most)
        linear = self.linear[:, rest] + whole_chunks * self.linear[:, most][:, None]
        grid = np.arange(self.prefill.shape[1]) * float(CONTEXT_GRAIN)
        grid[0] = 1.0
        first = np.stack([linear[i] + self.head[i, 1] + np.interp(prompts, grid, self.prefill[i]) for i in (0, 1)])
        # Every later token is one step, with a context that is longer by one token each time.
        total = np.empty_like(first)
        for i in (0, 1):
            positions = np.arange(1, self.decode.shape[2] * CONTEXT_GRAIN)
            step_s = np.interp(positions, grid, self.decode[i, 1])
            running = np.concatenate([[0.0, 0.0], np.cumsum(step_s)])
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
        """Return seconds and joules above idle (stacked) of an operation for the columns ``numbers``, times count."""
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
