"""The columns of a step: one iteration of a serving engine on a group of devices.

A step is no operation of a kind of device: its cost follows from those of the operations that it consists of
(``core.step``, ``core.step_cost``). So it is not in the registry, and jobs and calibration do not take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from windtunnel.core.architecture import FORMAT_BITS, Weights
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.ops import CONTEXT, OPERATIONS, Choices, Column, FloatArray, Numbers, Operation, choice, real
from windtunnel.core.registry import Registry
from windtunnel.core.serving_engine import ENGINE_NAMES
from windtunnel.core.speculation import HEADS

WEIGHT_FORMATS = ("bfloat16", "float16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int8", "int4")
KV_FORMATS = ("bfloat16", "float16", "fp8", "int8")

_DEFAULTS = {"clock": "sustained", "dispatch": "graph"}
"""A serving engine runs for long, and replays its steps as graphs."""


def _amount(name: str, default: int, doc: str) -> Column:
    return Column(name, "count", default=default, minimum=0.0, doc=doc)


class Step(Operation):
    """One iteration of a serving engine on a group of devices: each of ``decode`` sequences produces a token.

    It may also process ``prefill`` tokens of a prompt. With ``query_tokens`` above 1 it verifies drafted tokens.
    """

    name = "step"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("model", "text", doc="a name that `windtunnel models` lists, or the path of a config.json"),
        _amount("tensor", 1, "devices that share every layer"),
        _amount("pipeline", 1, "stages, each with a part of the layers"),
        _amount("attention_data", 1, "copies of the attention, each with a part of the sequences"),
        _amount("expert", 1, "devices that each hold a part of the experts, whole"),
        _amount("expert_tensor", 0, "devices that share every expert; 0: tensor x attention_data / expert"),
        _amount("decode", 0, "sequences that produce a token"),
        real("context", 0.0, unit="1", doc="tokens that each of these attends to, on average"),
        _amount("prefill", 0, "tokens of a prompt that the step processes"),
        _amount("prefill_context", 0, "tokens of that prompt that earlier steps have processed"),
        Column(
            "weights", "text", default="", doc="FORMAT or LINEAR/EXPERTS, such as fp8/fp8_block; empty: the model's"
        ),
        Column("kv_dtype", "text", default="", doc=f"{'|'.join(KV_FORMATS)}; empty: the model's"),
        choice("engine", ENGINE_NAMES, "generic", doc="whose profile applies: kernels, host time, factors"),
        Column(
            "query_tokens",
            "count",
            default=1,
            minimum=1.0,
            doc="tokens of each decoding sequence: 1, and with speculative decoding the drafted ones",
        ),
        Column(
            "draft",
            "text",
            default="",
            doc=f"what drafts them in the step: a model as above, or {', '.join(HEADS)}; empty: nothing",
        ),
        _amount("draft_tensor", 0, "devices that share the draft; 0: as many as share the model"),
        _amount("adapters", 0, "LoRA adapters that the sequences of the step use"),
        _amount("rank", 16, "the rank of their slots"),
    )

    @classmethod
    def all_columns(cls) -> tuple[Column, ...]:
        """Return the columns of a step, then those of its context with the defaults of a serving engine."""
        return cls.columns + tuple(
            choice(column.name, column.choices, _DEFAULTS.get(column.name, str(column.default)), doc=column.doc)
            for column in CONTEXT
        )

    @classmethod
    def complete(cls, values: Mapping[str, object]) -> dict[str, float | str]:
        """Return the checked ``values`` with defaults for missing columns and for empty values, as in tables."""
        return super().complete({n: v for n, v in values.items() if v != "" or cls.column(n).default is None})

    @classmethod
    def tokens(cls, n: Numbers) -> FloatArray:
        """Return the tokens that the step computes, of prompts and of sequences that decode."""
        return np.asarray(n["prefill"] + n["decode"] * n["query_tokens"])

    @classmethod
    def flops(cls, choices: Choices, n: Numbers) -> FloatArray:
        """Return 0: the operations of a step have the counts."""
        return np.zeros(())


def parse_weights(text: str, own: Weights) -> Weights:
    """Return the formats that ``FORMAT`` or ``LINEAR/EXPERTS`` states; ``own`` for an empty text.

    Raises:
        InputError: if a format is unknown.
    """
    if not text:
        return own
    words = text.split("/")
    if len(words) > 2:
        raise _unknown("weights", text, WEIGHT_FORMATS, "FORMAT or LINEAR/EXPERTS, each ")
    for word in words:
        if word not in WEIGHT_FORMATS:
            raise _unknown("weights", word, WEIGHT_FORMATS, "FORMAT or LINEAR/EXPERTS, each ")
    # A decoder with float16 weights has no bfloat16 anywhere, as on devices without it.
    other = "float16" if words[0] == "float16" and own.other == "bfloat16" else own.other
    return Weights(words[0], words[-1], other, own.group)


def parse_kv_dtype(text: str, own: str) -> str:
    """Return the format of the KV cache that is stated; ``own`` for an empty text.

    Raises:
        InputError: if the format is unknown.
    """
    if text and text not in KV_FORMATS:
        raise _unknown("kv_dtype", text, KV_FORMATS, "")
    return text or own


def _unknown(field: str, word: str, formats: tuple[str, ...], prefix: str) -> InputError:
    assert set(formats) <= set(FORMAT_BITS)  # noqa: S101  formats without a size could not be counted
    return InputError(
        f"'{word}' is not a format of {field}",
        where=Location(field=field),
        expected=prefix + list_choices(formats),
        nearest=nearest(word, formats),
    )


PREDICTED: Registry[type[Operation]] = Registry("operation")
"""What `predict` and `validate --against` take: the operations, and steps, which consist of them."""
_ALL: tuple[type[Operation], ...] = (*OPERATIONS.values(), Step)
for _operation in _ALL:
    PREDICTED.add(_operation.name, _operation)
