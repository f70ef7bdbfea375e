"""The cost of the parts of a decoder's step on a group of devices, as tables over tokens, sequences and context.

The cost of linear layers depends on the tokens in the step, and that of attention on the context of each sequence.
`core/step.py` lists the parts of a step, and the cost model of the device prices them. `core/step_cost.py` describes
pipeline stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.adapters import adapter_rows
from windtunnel.core.decoder_memory import (
    Beside,
    LargestStep,
    decoder_memory,
    engine_memory_bytes,
)
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.group import Group
from windtunnel.core.ops import Rows
from windtunnel.core.step import Amount, DraftPasses, Part
from windtunnel.core.ticks import FloatArray
from windtunnel.engine.prepare.curves import block_ends, coarsely, interpolated, thinned
from windtunnel.engine.prepare.replica import Replica
from windtunnel.engine.prepare.step_inputs import Described, divided_on, step_context, step_engine
from windtunnel.scenario.decoder import ServedModel

CONTEXT_GRAIN = 64
"""The distance in tokens between the points of the attention tables; values between them are interpolated."""
WITHOUT_WINDOW = 2.0**40
"""The window of attention without one (tokens)."""


@dataclass(frozen=True)
class StepTables:
    """The tables of ``DecoderTables``, and what describes them, under the same names: what takes time to compute."""

    linear: FloatArray
    copy: FloatArray
    head: FloatArray
    decode: FloatArray
    prefill: FloatArray
    windows: FloatArray
    adapted: FloatArray
    described: Described = field(default_factory=Described)


def mean_context(longest: int) -> float:
    """Return the mean context of sequences whose longest one has ``longest`` tokens, a point of the tables."""
    return -(-longest // CONTEXT_GRAIN) * CONTEXT_GRAIN / 2.0


class DecoderTables:
    """Durations (s) of the steps of a decoder on a replica, and energies above idle (J) of all its devices.

    Each table has the seconds at index 0 and the joules at index 1 of its first axis. With pipeline stages the tables
    are those of one microbatch through all stages.

    Attributes:
        linear: By tokens in the step, from 0; shape (2, tokens + 1).
        head: By sequences that produce a token, from 0; shape (2, sequences + 1).
        decode: By decoding sequences, and their mean context in grains; shape (2, sequences + 1, points).
        prefill: Attention of one whole prompt, by kind of window and tokens in grains; shape (windows, 2, points).
        windows: The window of each kind of attention (tokens).

    Args:
        replica: The devices.
        model: The decoder.
        step: The largest numbers of tokens and of sequences in one step.
        longest: The longest context: prompt and output together (tokens).
        memory_share: The share of memory that the engine may use.
        coarseness: How far the numbers of tokens and sequences that are priced are apart; see ``core.policy.Batch``.
        like: The tables of the same decoder on the same replica in steps of as many sequences. Those by sequences and
            by prompts are the same, and all of them where the steps also have as many tokens.

    Raises:
        InputError: if the group does not divide the decoder, or a context is longer than the decoder supports.
        UnsupportedOperationError: if the device does not execute an operation of the decoder.
    """

    def __init__(
        self,
        replica: Replica,
        model: ServedModel,
        step: LargestStep,
        longest: int,
        memory_share: float = 1.0,
        coarseness: float = 0.0,
        like: StepTables | DecoderTables | None = None,
    ) -> None:
        self.replica, self.served, self.model = replica, model, model.architecture
        self._coarseness = coarseness
        self.device, self.group = replica.device, replica.group
        self._flat: dict[str, FloatArray] = {}
        self.group.check(self.model)
        self._check_contexts(longest)
        self._engine = step_engine(replica, model)
        self.divided = divided_on(replica, model)
        self.context = step_context(model)
        self._parts = list(self.divided.every_part())
        missing = sorted({part.op.name for part in self._parts if not self.device.runs(part.op.name)})
        if missing:
            raise UnsupportedOperationError(
                f"{self.device.label} is a {self.device.kind.name}, which does not execute {missing[0]}, as "
                f"{self.model.name} does"
            )
        grid = np.arange(0, longest + 2 * CONTEXT_GRAIN, CONTEXT_GRAIN, dtype=np.float64)
        grid[0] = 1.0
        self.described: Described = Described() if like is None else like.described
        self.beside = Beside(model.speculation, model.adapters)
        self.memory = decoder_memory(
            self.model,
            self.group,
            engine_memory_bytes(self.device),
            step,
            memory_share=memory_share,
            reserves=replica.reserves,
            context=max(longest // 2, 1),
            beside=self.beside,
        )
        self.largest, self._memory_share = step, memory_share
        tokens = np.arange(1, step.tokens + 1, dtype=np.float64)
        self.linear = np.zeros((2, step.tokens + 1))
        self.copy = np.zeros((2, step.tokens + 1 if self.group.attention_data > 1 else 0))
        self.head = np.zeros((2, step.sequences * self.query_tokens + 1))
        self.decode = np.zeros((2, step.sequences + 1, len(grid)))
        self._compute(tokens, grid, like)

    def _compute(self, tokens: FloatArray, grid: FloatArray, like: StepTables | DecoderTables | None) -> None:
        """Compute the tables, or take those that ``like`` has, by tokens in a step and contexts in ``grid``."""
        copies = self.group.attention_data
        by_window: dict[float, FloatArray] = {}
        # Index 0 of an axis of tokens or sequences represents none, which cost nothing.
        parts: list[tuple[Part, Group, DraftPasses | None]] = [(p, self.group, None) for p in self.divided.parts()]
        parts += [(part, some.decoder.group, some) for some in self.divided.passes for part in some.parts()]
        same = like is not None and like.linear.shape == self.linear.shape
        for part, of, drafts in parts:
            if like is None or (part.amount is Amount.TOKENS and not same):
                self._add(part, tokens, grid, by_window, of, drafts)
        handover = self.divided.handover()
        if handover is not None and not same:
            table = self.linear if copies == 1 else self.copy
            table[:, 1:] += (self.group.pipeline - 1) * self._cost(handover, copies * tokens)
        self.adapted: FloatArray = like.adapted if like is not None and same else self._adapted(copies * tokens)
        self.windows = np.array(sorted(by_window) or [WITHOUT_WINDOW])
        self.prefill = np.stack([by_window.get(float(window), np.zeros((2, len(grid)))) for window in self.windows])
        if like is not None:
            self.head, self.decode, self.prefill, self.windows = like.head, like.decode, like.prefill, like.windows
        if like is not None and same:
            self.linear, self.copy = like.linear, like.copy

    def _adapted(self, tokens: FloatArray) -> FloatArray:
        """Return what 0, 1, ... adapters add to steps, by the tokens of a copy of the attention from 0.

        ``tokens`` are those of all copies; the shape is (2, slots + 1, tokens + 1).
        """
        adapters = self.served.adapters
        slots = 0 if adapters is None else adapters.slots
        table = np.zeros((2, slots + 1, len(tokens) + 1))
        if adapters is not None:
            each = np.arange(1.0, slots + 1)
            points = block_ends(tokens)
            active = np.broadcast_to(tokens[points], (slots, len(points)))
            for _, times, rows in adapter_rows(self.divided, adapters.rank, active, each[:, None], self.context):
                table[:, 1:, 1:] += times * interpolated(self._priced(rows, self.group), points, tokens)
        return table

    def _add(
        self,
        part: Part,
        tokens: FloatArray,
        grid: FloatArray,
        by_window: dict[float, FloatArray],
        group: Group,
        drafts: DraftPasses | None = None,
    ) -> None:
        """Add a part to the tables.

        A draft has one token of each decoding sequence, and logits of each, unless it processes the same tokens as the
        decoder. What it does in proportion to decoding sequences is in the table ``decode``.
        """
        sequences = np.arange(1, self.decode.shape[1], dtype=np.float64)
        if part.amount is Amount.PROMPTS:
            window = WITHOUT_WINDOW if part.window is None else float(part.window)
            whole = self._cost(part, np.ones(1), {"kv_tokens": grid, "batch": np.ones(1)}, group)
            # A prompt runs on one of the copies of the attention.
            whole[1] /= self.group.attention_data
            by_window[window] = by_window.get(window, 0.0) + np.maximum.accumulate(whole, axis=1)
        elif part.amount is Amount.DECODING:
            self.decode[:, 1:, :] += self._decoding(part, sequences, grid, group)
        elif part.amount is Amount.TOKENS and (drafts is None or drafts.reads_prompts):
            copies = group.attention_data
            own = part.shared or copies == 1
            amounts, table = (tokens, self.linear) if own else (copies * tokens, self.copy)
            points = block_ends(amounts)
            whole = interpolated(self._cost(part, amounts[points], group=group), points, amounts)
            table[:, 1:] += np.where(part.runs(amounts), whole, 0.0)
        elif drafts is None:
            self.head[:, 1:] += self._cost(part, np.arange(1, self.head.shape[1], dtype=np.float64))
        else:
            cost = np.where(part.runs(sequences), self._cost(part, sequences, group=group), 0.0)
            self.decode[:, 1:, :] += cost[:, :, None]

    def _decoding(self, part: Part, sequences: FloatArray, grid: FloatArray, group: Group) -> FloatArray:
        if all(column.name != "kv_tokens" for column in part.op.columns):
            return self._cost(part, sequences, group=group)[:, :, None]
        attended = grid if part.window is None else np.minimum(grid, float(part.window))
        points = thinned(grid, 1024.0)
        priced = self._cost(part, sequences[:, None], {"kv_tokens": attended[points][None, :]}, group)
        return interpolated(priced, points, grid)

    def _cost(
        self,
        part: Part,
        amount: FloatArray,
        more: Mapping[str, FloatArray] | None = None,
        group: Group | None = None,
    ) -> FloatArray:
        """Return seconds and joules above idle (stacked) of a part, for the devices of one stage over all layers.

        ``group`` has the devices that run it, if these are not those of the decoder.
        """

        def price(some: FloatArray) -> FloatArray:
            return part.times * self._priced(part.rows(some, self.context, more), group or self.group)

        return coarsely(price, amount, self._coarseness) if self._coarseness else price(amount)

    def _priced(self, rows: Rows, group: Group) -> FloatArray:
        """Return seconds and joules above idle (stacked) of an operation on every device of a stage of ``group``."""
        cost = self.device.cost(rows, intervals=False)
        above_idle = np.maximum(cost.power_w - self.device.idle_power_w, 0.0)
        return np.stack([cost.duration_s, cost.duration_s * above_idle * group.stage_devices])

    def _check_contexts(self, longest: int) -> None:
        """Check that the decoder and its draft support the longest context."""
        speculation = self.served.speculation
        draft = None if speculation is None else speculation.draft.model
        for of, model in (("", self.model), ("the draft ", draft)):
            most = None if model is None else model.max_context
            if model is not None and most is not None and longest > most:
                tokens = f"at most {most:,} tokens of prompt and output together"
                raise InputError(
                    f"a request has a context of {longest:,} tokens, and {of}{model.name} supports {most:,}",
                    expected="a draft that supports the contexts of the requests" if of else tokens,
                )

    @property
    def query_tokens(self) -> int:
        """The tokens of each decoding sequence that a step processes; above 1 with speculative decoding."""
        return self.divided.query_tokens

    def flat(self, table: str) -> FloatArray:
        """Return a table as a contiguous array of shape (n,), seconds before joules; always the same object."""
        if table not in self._flat:
            self._flat[table] = np.ascontiguousarray(getattr(self, table)).reshape(-1)
        return self._flat[table]

    @property
    def table_bytes(self) -> int:
        """The size of the tables in memory (bytes)."""
        return sum(
            table.nbytes for table in (self.linear, self.copy, self.head, self.decode, self.prefill, self.adapted)
        )
