"""The time per output token of closed loops of users on one group, without a simulation, for fitting.

All users decode in every step, with the mean context of a request, and u / o prompts start in each step on average,
for u users whose requests produce o tokens. The steps are priced without what an engine adds, so that its numbers can
be fitted to measured times (``core.serving_engine`` has the formula).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.group import Group
from windtunnel.core.ops import FloatArray, one_row
from windtunnel.core.serving_engine import key_of
from windtunnel.core.step import EngineTimes
from windtunnel.core.step_op import Step
from windtunnel.library.steps import StepPricing
from windtunnel_models.campaigns import lengths_differ
from windtunnel_models.engines import serving_engine


@dataclass(frozen=True)
class ClosedLoop:
    """A closed loop on one group.

    Args:
        engine: The name of the serving engine.
        model: The decoder's name.
        sku: The device.
        group: How devices divide the decoder.
        weights: The formats of its weights, as a column of ``Step``; empty: its own.
        kv_dtype: The format of its cache; empty: its own.
        users: The requests that are in the system at all times.
        prompt: Tokens of a prompt.
        output: Tokens of an output.
    """

    engine: str
    model: str
    sku: str
    group: Group
    weights: str
    kv_dtype: str
    users: float
    prompt: float
    output: float

    @property
    def configuration(self) -> tuple[object, ...]:
        """What one deployment has in common: rows of it are not independent."""
        return (self.engine, self.model, self.sku, self.group, self.weights, self.kv_dtype)


@dataclass(frozen=True)
class LoopTimes:
    """The operations of a closed loop's steps (s), and how its engine's numbers make a time per output token of them.

    Args:
        loop: The loop.
        key: The key of its model and device in profiles.
        decode_s: A step in which all users decode.
        prompts_s: Each chunk of a prompt alone.
        mixed_s: What each chunk adds to a step in which all users decode.
        layers: The layers of the decoder.
        alone: Whether prompts are read in steps of their own.
    """

    loop: ClosedLoop
    key: str
    decode_s: float
    prompts_s: Sequence[float]
    mixed_s: Sequence[float]
    layers: int
    alone: bool

    def tpot_s(self, times: EngineTimes) -> float:
        """Return the time per output token.

        If prompts are read in steps of their own, a user waits for the prompts of all others while it decodes. Requests
        of one length stay together: all users begin at once, and a user waits for half of the others' prompts after
        the own first token. Otherwise a chunk delays every user.
        """
        users, output = self.loop.users, self.loop.output
        step_s = times.decode * self.decode_s
        least_s = times.prompt_layer_s * self.layers
        host_s = times.host_s + times.host_sequence_s * users
        if self.alone:
            read_s = sum(max(times.prefill * chunk_s, least_s) + times.host_s for chunk_s in self.prompts_s)
            others = users if lengths_differ(self.loop.prompt, output) else 0.5 * users
            return step_s + host_s + others / output * read_s
        added_s = sum(max(step_s + times.prefill * chunk_s, least_s) - step_s for chunk_s in self.mixed_s)
        return step_s + host_s + users / output * added_s


def loop_times(loops: Sequence[ClosedLoop], pricing: StepPricing) -> list[LoopTimes]:
    """Return the operations of closed loops on groups of ``pricing``'s device.

    Raises:
        InputError: for a model, a group or a format that the models refuse.
    """
    names = {loop.engine for loop in loops}
    engines = {name: replace(serving_engine(name), values={}) for name in names}
    bare = StepPricing(pricing.device, engines)
    out = []
    for loop in loops:
        engine = engines[loop.engine]
        budget = engine.limits_on(pricing.device).tokens.value
        if not engine.limits_of_copy:
            budget /= loop.group.attention_data
        count = math.ceil(loop.prompt / budget)
        size = round(loop.prompt / count)
        fixed = {**_columns(loop), "decode": loop.users, "context": loop.prompt + loop.output / 2.0}
        chunks = [{"prefill": size, "prefill_context": size * place} for place in range(count)]
        loads = [{}, *chunks, *({**chunk, "decode": 0, "context": 0} for chunk in chunks)]
        costs = bare.costs([one_row(Step, {**fixed, **load}) for load in loads], intervals=False)
        decode_s, *others_s = (float(cost.duration_s[0]) for cost in costs)
        model = bare.decoder(loop.model, loop.weights, loop.kv_dtype)
        out.append(
            LoopTimes(
                loop,
                key_of(model, pricing.device),
                decode_s,
                others_s[count:],
                [seconds - decode_s for seconds in others_s[:count]],
                model.layer_count,
                engine.prefill_first,
            )
        )
    return out


def errors(rows: Sequence[LoopTimes], measured_s: Sequence[float], times: EngineTimes) -> FloatArray:
    """Return the logarithms of modelled over measured times per output token; shape (rows,)."""
    logs: FloatArray = np.log(
        np.array([row.tpot_s(times) / seconds for row, seconds in zip(rows, measured_s, strict=True)])
    )
    return logs


def _columns(loop: ClosedLoop) -> dict[str, object]:
    group = loop.group
    return {
        "model": loop.model,
        "engine": loop.engine,
        "weights": loop.weights,
        "kv_dtype": loop.kv_dtype,
        "tensor": group.tensor,
        "pipeline": group.pipeline,
        "attention_data": group.attention_data,
        "expert": group.expert,
        "expert_tensor": group.expert_tensor or 0,
    }
