"""The cost of one step of a decoder on a group of devices, and of whole requests.

A step produces one token for each decoding sequence and may process chunks of prompts. `decoder_tables.py` has the cost
of its parts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from windtunnel.core.adapters import KERNEL_TIME, adapter_bytes
from windtunnel.core.decoder_memory import (
    check_fits,
)
from windtunnel.core.device import ModelAccuracy
from windtunnel.core.group import Group
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.speculation import PASS_HOST_SHARE
from windtunnel.core.step import EngineTimes
from windtunnel.core.step_cost import (
    MICROBATCH_TOKENS,
    IntArray,
    causal_scores,
    step_host_s,
)
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.curves import ByNumber, between, prompt_scores
from windtunnel.engine.prepare.decoder_tables import CONTEXT_GRAIN, DecoderTables, mean_context
from windtunnel.engine.prepare.step_inputs import step_accuracy, step_sources


class DecoderCosts(DecoderTables):
    """The costs of steps of a decoder on a replica: seconds, and joules above idle of all its devices."""

    @property
    def adapter_load_s(self) -> float:
        """The time to copy an adapter from the memory of the host into a slot, on all devices at once (s)."""
        adapters = self.served.adapters
        if adapters is None:
            return 0.0
        size = adapter_bytes(self.model, self.group, adapters.rank)
        copy = OPERATIONS["copy"]
        complete = copy.complete({"bytes": math.ceil(size), "direction": "h2d", "memory": "pinned"})
        choices = {name: value for name, value in complete.items() if isinstance(value, str)}
        numbers = {name: np.array([value]) for name, value in complete.items() if not isinstance(value, str)}
        return float(self.device.cost(Rows(copy, choices, numbers), intervals=False).duration_s[0])

    @property
    def adapter_read_s(self) -> float:
        """The time to read an adapter from storage, whole (s); 0 if the host holds all of them."""
        adapters = self.served.adapters
        if adapters is None or not adapters.storage_bytes_s:
            return 0.0
        return adapter_bytes(self.model, Group(), adapters.rank) / adapters.storage_bytes_s

    @property
    def tokens_per_step(self) -> float:
        """The expected number of tokens that a decoding sequence produces in a step."""
        speculation = self.served.speculation
        return 1.0 if speculation is None else speculation.expected_tokens

    @property
    def drafting_host_s(self) -> float:
        """What drafting adds to the host's time of a step (s)."""
        one = np.ones(1)
        return float(step_host_s(self.divided, one)[0] - step_host_s(self.divided, 0.0 * one)[0])

    @property
    def times(self) -> EngineTimes:
        """What the serving engine adds to the operations of a step."""
        return self.divided.times

    @property
    def prompt_floor_s(self) -> float:
        """The least time of the operations of a step that reads a prompt (s)."""
        return self.times.prompt_layer_s * self.divided.prompt_layers

    @property
    def stage_share(self) -> float:
        """The share of the layers that the largest pipeline stage has."""
        depth = self.model.layer_count
        return -(-depth // self.group.pipeline) / depth

    @property
    def operations(self) -> frozenset[str]:
        """The names of the operations in a step."""
        return frozenset(part.op.name for part in self._parts)

    @property
    def sources(self) -> Mapping[str, SourcedValue]:
        """Every number on which the costs depend, by name."""
        if self.described.sources is None:
            self.described.sources = step_sources(self.device, self._parts, self.context)
        return self.described.sources

    @property
    def engine_sources(self) -> Mapping[str, SourcedValue]:
        """The numbers of the serving engine, of drafting and of adapters on which the costs depend, by name."""
        found = {} if self._engine is None else self._engine.sources(self.model, self.device)
        if self.divided.draft_passes:
            found["speculation.pass_host_share"] = PASS_HOST_SHARE
        if self.served.adapters is not None:
            found["adapters.kernel_time"] = KERNEL_TIME
        return found

    @property
    def accuracy(self) -> ModelAccuracy:
        """The accuracy of the time of a step."""
        if self.described.accuracy is None:
            context = mean_context((self.decode.shape[2] - 2) * CONTEXT_GRAIN)
            self.described.accuracy = step_accuracy(self.replica, self.served, self.largest, context)
        return self.described.accuracy

    @property
    def idle_power_w(self) -> float:
        """The idle power of all devices (W)."""
        return self.device.idle_power_w * self.group.devices

    @property
    def awake_w(self) -> float:
        """The power above idle of all devices while they wait within a step (W)."""
        return self.device.spin_power_w(0.0) * self.group.devices

    @property
    def reserved_bytes(self) -> float:
        """The memory of the replica that is not left for the cache (bytes): weights, activations and other reserves."""
        return self.replica.memory_bytes * self._memory_share - self.memory.kv_bytes * self.group.devices

    def request_bytes(self, tokens: FloatArray) -> FloatArray:
        """Return the memory that one request of so many tokens needs, with all that is not cache (bytes).

        Each copy of the attention has a part of the cache, and holds whole requests.
        """
        memory = self.memory
        # A step reserves room for the drafted tokens of each sequence. Memory is reserved in whole blocks.
        cached = np.ceil((tokens + self.query_tokens - 1) / memory.block_tokens) * memory.block_tokens
        cached_bytes = cached * memory.kv_bytes_per_token + memory.state_bytes_per_sequence
        return self.reserved_bytes + cached_bytes * self.group.devices

    @property
    def capacity_tokens(self) -> int:
        """How many tokens of KV cache the replica has room for."""
        return min(self.memory.kv_capacity_tokens, 2**53)

    def check_room(self, tokens: int) -> None:
        """Raise InputError if a request of so many tokens has no room; it names the smallest group that would do."""
        check_fits(
            self.model,
            self.group,
            self.device,
            self.largest,
            memory_share=self._memory_share,
            reserves=self.replica.reserves,
            tokens=max(tokens, 1) + self.query_tokens - 1,
            beside=self.beside,
        )

    def microbatches(self, decoding: int, read: int) -> int:
        """Return into how many microbatches a step is divided: as many as there are stages, if it has so many."""
        wanted = max(decoding, -(-read // MICROBATCH_TOKENS), 1)
        return min(wanted, self.group.pipeline)

    def step(
        self,
        decoding: int,
        context: float,
        chunks: Sequence[tuple[int, int]],
        ends_prompts: int,
        adapters: int = 0,
    ) -> tuple[float, float]:
        """Return seconds and joules above idle of one step.

        Args:
            decoding: The number of sequences that decode; each has ``query_tokens`` tokens in the step.
            context: The sum of their contexts (tokens).
            chunks: The start and the length of each chunk of a prompt in the step (tokens).
            ends_prompts: The number of prompts that the step completes, each of which produces its first token.
            adapters: The LoRA adapters of the sequences.
        """
        read = sum(length for _, length in chunks)
        micro = self.microbatches(decoding, read)
        verified = decoding * self.query_tokens
        tokens, heads = -(-(verified + read) // micro), -(-(verified + ends_prompts) // micro)
        times = self.times
        factor = (verified * times.decode + read * times.prefill) / max(verified + read, 1)
        seconds, joules = factor * (
            self.linear[:, tokens]
            + self.head[:, heads]
            + self._of_copy(decoding, chunks, micro)
            + self.adapted[:, adapters, -(-self._most_of_copy(decoding, chunks) // micro)]
        )
        if decoding:
            s, j = between(self.decode[:, -(-decoding // micro)], context / decoding / CONTEXT_GRAIN)
            seconds, joules = seconds + times.decode * s, joules + times.decode * j
        for start, length in chunks:
            s, j = self.prompt_attention(start, length)
            seconds += times.prefill * s / (micro * min(self.group.attention_data, len(chunks)))
            joules += times.prefill * j / micro
        operations_s = float(seconds) * max(1.0, micro * self.stage_share)
        if read:
            operations_s = max(operations_s, self.prompt_floor_s)
        host_s = times.host_s + times.host_sequence_s * (decoding + ends_prompts)
        host_s += self.drafting_host_s if decoding else 0.0
        # The devices wait for the host and for other stages, awake.
        waiting_s = max(operations_s + host_s - micro * float(seconds) / self.group.pipeline, 0.0)
        return operations_s + host_s, float(joules) * micro + self.awake_w * waiting_s

    def _most_of_copy(self, decoding: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Return the tokens of the copy of the attention with the most; a prompt is on one copy."""
        copies, read = self.group.attention_data, sum(length for _, length in chunks)
        return -(-decoding // copies) * self.query_tokens + (-(-read // min(copies, len(chunks))) if read else 0)

    def _of_copy(self, decoding: int, chunks: Sequence[tuple[int, int]], micro: int) -> FloatArray:
        """Return seconds and joules of what each copy of the attention does for its own tokens, shape (2,).

        Sequences are spread evenly, and a prompt is on one copy. The copy with the most tokens decides, and the others
        wait; what they draw follows from their tokens.
        """
        copies, read = self.group.attention_data, sum(length for _, length in chunks)
        if copies == 1:
            return np.zeros(2)
        most = self._most_of_copy(decoding, chunks)
        working = (decoding * self.query_tokens + read) / (copies * most)
        cost: FloatArray = self.copy[:, -(-most // micro)] * np.array([1.0, working])
        return cost

    def prompt_attention(self, start: int, chunk: int) -> tuple[float, float]:
        """Return seconds and joules above idle of the attention of ``chunk`` prompt tokens from ``start`` on.

        It has the rate of a whole prompt that ends where the chunk ends, by its share of the scores. Within a window
        each query has at most as many scores as the window has tokens; the rate is then that of two windows.
        """
        seconds = joules = 0.0
        for table, window in zip(self.prefill, self.windows, strict=True):
            until = float(start + chunk)
            priced = min(until, max(2.0 * window, float(chunk)))
            share = (prompt_scores(until, window) - prompt_scores(float(start), window)) / (
                priced * (priced + 1.0) / 2.0
            )
            s, j = between(table, priced / CONTEXT_GRAIN)
            seconds, joules = seconds + s * share, joules + j * share
        return seconds, joules

    def alone(self, prompts: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the costs of requests that are served one at a time; arrays of the shape of ``prompts``.

        With speculative decoding they are those of the expected number of steps.

        Returns:
            The seconds until the first token, the seconds in total, and the joules above idle of both.
        """
        read = self._read_alone(prompts.astype(np.int64), self._reading_alone)
        total = np.empty_like(read)
        last = self._attending_alone.shape[1] - 1
        start = np.minimum(prompts.astype(np.int64) + 1, last)
        stop = np.minimum((prompts + outputs).astype(np.int64), last)
        steps, own = np.maximum(outputs - 1, 0), self.query_tokens
        for i, running in enumerate(self._attending_alone):
            one = self.linear[i, own] + self.head[i, own] + self._of_copy(1, [], 1)[i]
            decoded = steps * one + (running[stop] - running[start])
            total[i] = read[i] + self.times.decode * decoded / self.tokens_per_step
        host_s = self.times.host_s + self.times.host_sequence_s + self.drafting_host_s
        total[0] += steps * host_s / self.tokens_per_step
        return read[0], total[0], read[1], total[1]

    @cached_property
    def _attending_alone(self) -> FloatArray:
        """What ``decode`` adds up to in the steps of one sequence with contexts of 1, 2, ... tokens.

        Every token is one step, with a context that is longer by one token each time. The shape is (2, contexts + 2),
        and the sums begin at index 2.
        """
        grid = np.arange(self.decode.shape[2]) * float(CONTEXT_GRAIN)
        grid[0] = 1.0
        positions = np.arange(1, self.decode.shape[2] * CONTEXT_GRAIN)
        rows = [np.cumsum(np.interp(positions, grid, self.decode[i, 1])) for i in (0, 1)]
        return np.stack([np.concatenate([[0.0, 0.0], row]) for row in rows])

    @cached_property
    def _read_alone(self) -> ByNumber:
        """The cost of reading a prompt alone, by its length."""
        return ByNumber()

    def _reading_alone(self, prompts: IntArray) -> FloatArray:
        """Return ``reading`` of each prompt alone, shape (2, prompts): the same as ``step`` of each of its chunks."""
        copies, times = self.group.attention_data, self.times
        largest = (self.linear.shape[1] - 1) // copies
        total = np.zeros((2, len(prompts)))
        for start in range(0, int(prompts.max(initial=0)), largest):
            mine = np.flatnonzero(prompts > start)
            chunk = np.minimum(prompts[mine] - start, largest)
            ends = (prompts[mine] == start + chunk).astype(np.int64)
            micro = np.clip(-(-chunk // MICROBATCH_TOKENS), 1, self.group.pipeline)
            each = -(-chunk // micro)
            cost = self.linear[:, each] + self.head[:, -(-ends // micro)]
            if copies > 1:
                cost = cost + self.copy[:, each] * np.array([[1.0], [1.0 / copies]])
            cost = times.prefill * (cost + self._whole_prompts(start, chunk.astype(np.float64)) / micro)
            seconds = np.maximum(cost[0] * np.maximum(1.0, micro * self.stage_share), self.prompt_floor_s)
            seconds = seconds + times.host_s + times.host_sequence_s * ends
            waiting_s = np.maximum(seconds - micro * cost[0] / self.group.pipeline, 0.0)
            total[0, mine] += seconds
            total[1, mine] += cost[1] * micro + self.awake_w * waiting_s
        return total

    def _whole_prompts(self, start: int, chunk: FloatArray) -> FloatArray:
        """Return ``prompt_attention`` of chunks of different lengths, shape (2, chunks)."""
        total = np.zeros((2, len(chunk)))
        points = np.arange(self.prefill.shape[2]) * float(CONTEXT_GRAIN)
        until = start + chunk
        for table, window in zip(self.prefill, self.windows, strict=True):
            priced = np.minimum(until, np.maximum(2.0 * window, chunk))
            share = causal_scores(until, window) - prompt_scores(float(start), window)
            share /= priced * (priced + 1.0) / 2.0
            total += share * np.stack([np.interp(priced, points, row) for row in table])
        return total

    def reading(self, prompts: Sequence[int]) -> tuple[float, float]:
        """Return seconds and joules above idle of prompts that are read together, in steps of as many tokens as fit."""
        most = self.linear.shape[1] - 1
        seconds = joules = 0.0
        unread = deque((0, prompt) for prompt in prompts if prompt > 0)
        while unread:
            room, ends = most, 0
            chunks: list[tuple[int, int]] = []
            left: list[tuple[int, int]] = []
            while unread and room:
                start, prompt = unread.popleft()
                # A prompt is on one copy of the attention, which has its part of the tokens of a step.
                chunk = min(room, prompt - start, most // self.group.attention_data)
                chunks.append((start, chunk))
                room -= chunk
                if start + chunk == prompt:
                    ends += 1
                else:
                    left.append((start + chunk, prompt))
            unread.extendleft(reversed(left))
            s, j = self.step(0, 0.0, chunks, ends)
            seconds, joules = seconds + s, joules + j
        return seconds, joules

    def least_tables(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return lower bounds of ``linear``, ``head`` and ``decode`` with what the engine adds; the same shapes.

        The host's time of a step is in ``linear``, and that of a sequence in ``head``.
        """
        times = self.times
        factor = min(times.decode, times.prefill)
        linear = self.linear
        if self.group.attention_data > 1:
            # Tokens that are spread evenly take the least time; energy follows from tokens at the lowest rate.
            each = np.arange(linear.shape[1]) / self.group.attention_data
            rate = (self.copy[1, 1:] / np.arange(1, linear.shape[1])).min()
            seconds = np.minimum.accumulate(self.copy[0, ::-1])[::-1][np.ceil(each).astype(int)]
            linear = linear + np.stack([seconds, each * rate])
        linear, head = factor * linear, factor * self.head
        linear[0, 1:] += times.host_s
        # Each sequence has at most so many positions that give logits.
        head[0] += times.host_sequence_s * np.arange(head.shape[1]) / self.query_tokens
        return linear, head, times.decode * self.decode

    def least_prefill(self, prompts: FloatArray) -> FloatArray:
        """Return a lower bound of the attention of whole prompts, however they are divided into chunks (s).

        Each chunk has the rate of some shorter prompt, so at least the lowest of these rates. Between two points of a
        table the time is a line and the number of scores is convex, so the lowest rate is at one of the points.
        """
        points = np.arange(self.prefill.shape[2]) * float(CONTEXT_GRAIN)
        points[0] = 1.0
        seconds = np.zeros_like(prompts)
        upper = np.minimum(np.ceil(prompts / CONTEXT_GRAIN).astype(np.int64), len(points) - 1)
        for table, window in zip(self.prefill[:, 0], self.windows, strict=True):
            rates = np.minimum.accumulate(table / (points * (points + 1.0) / 2.0))
            seconds = seconds + rates[upper] * causal_scores(prompts, window)
        return self.times.prefill * seconds / self.group.attention_data
