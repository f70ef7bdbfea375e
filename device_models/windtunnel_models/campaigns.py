"""What published serving campaigns do not tell about their rows: formats by their family, and how lengths differ.

The rows of ``serving.csv.gz`` are dumps of public campaigns. Their names of formats are families, and they tell neither
the format of the KV cache nor the spread of lengths. What is filled in here comes from the published checkpoints, and
from the scripts of the campaign InferenceMAX (SemiAnalysisAI/InferenceX, ``benchmarks/*.sh``).
"""

from __future__ import annotations

from windtunnel_models.models import find_architecture

_FAMILIES = {"fp8": ("fp8", "fp8_block"), "nvfp4": ("nvfp4", "mxfp4")}
"""What campaigns call a format, and the formats that it may mean."""

_DRAWN = {(1024, 1024), (1024, 8192), (8192, 1024)}
"""Prompt and output of the scenarios of InferenceMAX: chat, reasoning and summarising."""


def published_formats(name: str, weights: str) -> str:
    """Return the formats of a measured decoder, as a column of ``Step`` states them, from those that a campaign tells.

    Campaigns call block-scaled FP8 ``fp8`` and every 4-bit float ``nvfp4``, and give one format of all weights. Of a
    mixture of experts whose published checkpoint has experts in a format of the same family, it is that checkpoint; the
    answer is then empty.

    Args:
        name: The decoder, by its name or the path of its configuration.
        weights: ``FORMAT`` or ``LINEAR/EXPERTS``, or empty for its own.

    Raises:
        InputError: if the decoder is not known.
    """
    own = find_architecture(name)
    linear, _, experts = weights.partition("/")
    told = experts or linear
    has_experts = any(layers.experts is not None for layers in own.layers)
    as_published = (own.weights.linear, own.weights.experts) == (linear, told)
    if has_experts and not as_published and own.weights.experts in _FAMILIES.get(told, (told,)):
        return ""
    return weights


def published_cache(weights: str, kv_dtype: str) -> str:
    """Return the format of the KV cache of a measured decoder; ``kv_dtype`` unless that is empty.

    NVFP4 checkpoints come from ModelOpt, and state an 8-bit cache (``kv_cache_quant_algo: FP8`` of their
    ``hf_quant_config.json``), which the engines obey. Of others the answer is empty: the model's own.

    Args:
        weights: The formats of the weights, as ``published_formats`` returns them.
        kv_dtype: The stated format, or empty.
    """
    return "fp8" if not kv_dtype and weights.partition("/")[0] == "nvfp4" else kv_dtype


def lengths_differ(prompt: float, output: float) -> bool:
    """Return whether requests of so many tokens are those of a campaign that draws lengths.

    InferenceMAX draws prompts and outputs between 80% and all of the stated tokens (``--random-range-ratio 0.8``).
    Requests of equal lengths stay together with an engine that reads prompts in steps of their own; others do not.
    """
    return (round(prompt), round(output)) in _DRAWN


def polling_steps(engine: str, prompt: float, output: float, users: float) -> int:
    """Return the steps between two looks of a measured engine for new requests; 1 unless a campaign has set others.

    The scripts of InferenceMAX start SGLang on B200 with ``--scheduler-recv-interval 30``, or 10 below 16 users
    (SemiAnalysisAI/InferenceX@1fc5d73c, ``benchmarks/dsr1_fp8_b200.sh``).
    """
    if engine != "sglang" or not lengths_differ(prompt, output):
        return 1
    return 30 if users >= 16 else 10
