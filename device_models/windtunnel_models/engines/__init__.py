"""Profiles of serving engines, one YAML file for each, and overlays that `windtunnel calibrate serving` writes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from windtunnel.core.decoder_memory import Reserves, ShareOf
from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.serving_engine import (
    DENSE,
    ENGINE_NAMES,
    EXPERTS,
    OTHER,
    Admission,
    FusedFor,
    FusedNorms,
    Limits,
    ServingEngine,
)
from windtunnel.core.spec import Parameter
from windtunnel_models.reader import FileReader

FOLDER = Path(__file__).parent
DIES = ("GH100", "GB100")
"""The dies to which shipped profiles are fitted."""
KEYS = (OTHER, EXPERTS, *DIES)
KINDS = (DENSE, EXPERTS)
"""Decoders whose time to the first token has an error of its own."""

_OVERLAY = "calibration of a serving engine"
_RESERVES = {
    "workspace_bytes": "what the engine's libraries allocate",
    "sampler_bytes": "the sampler's own buffer",
    "communication_bytes": "buffers of exchanges on each device of a group",
    "graph_bytes": "captured graphs",
}
FITTED = (
    Parameter("decode", "1", "factor on the time of operations in steps that decode", KEYS),
    Parameter("prefill", "1", "factor on the time of operations in steps that read prompts", KEYS),
    Parameter("prompt_layer_s", "s", "least time of a layer in a step that reads a prompt", KEYS),
    Parameter("host_s", "s", "time of the host in every step", KEYS),
    Parameter("host_sequence_s", "s", "time of the host for each sequence that produces a token", KEYS),
    Parameter("error", "1", "factor of the 90% interval of a step on the SKUs of the fit", KEYS),
    Parameter("unseen_error", "1", "the same on other SKUs", KEYS),
)
"""The numbers of ``core.step.EngineTimes``, which are fitted by die, and for mixtures of experts together."""
_TIERS = ("small", "medium", "large", "huge")
"""Sizes of devices, for which engines have different limits."""
_FITTED_NAMES = {parameter.name for parameter in FITTED}
_LIBRARIES = ("nccl", "vllm", "sglang", "trtllm")
_FUSED = tuple(f"{architecture}-{devices}" for architecture in ("hopper", "blackwell") for devices in (2, 4, 8))
"""The keys of the largest buffers of fused all-reduces."""
_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("tokens", "1", "largest number of tokens in a step, by the memory of the device", _TIERS),
        Parameter("sequences", "1", "largest number of sequences in a step, likewise", _TIERS),
        Parameter("from_bytes", "B", "the memory from which a size of devices begins; small ones begin at 0", _TIERS),
        Parameter("memory_share", "1", "share of the memory, as `share_of` reads it", required=True),
        Parameter("block_tokens", "1", "tokens of a block of the cache", required=True),
        Parameter("frontend_s", "s", "time of a request outside of the steps before its first token", required=True),
        Parameter(
            "late_prompts",
            "1",
            "times of reading the own prompt that pass before the first token is delivered",
            required=True,
        ),
        Parameter("first_token_error", "1", "factor of the 90% interval of the time to the first token", KINDS),
        Parameter("first_token_median", "1", "median of measured over modelled times to the first token", KINDS),
        Parameter("logit_copies", "1", "float32 copies of the logits while tokens are sampled"),
        *(Parameter(name, "B", doc) for name, doc in _RESERVES.items()),
        Parameter("fused_tokens", "1", "most tokens of a step whose all-reduces also normalise"),
        Parameter("fused_bytes", "B", "largest buffer of an all-reduce that also normalises", _FUSED),
        *FITTED,
    )
}


def serving_engine(name: str) -> ServingEngine:
    """Return the shipped profile of a serving engine; raises InputError for an unknown name."""
    if name not in ENGINE_NAMES:
        raise InputError(
            f"no serving engine is known as '{name}'",
            expected=list_choices(ENGINE_NAMES),
            nearest=nearest(name, ENGINE_NAMES),
        )
    return _read(FOLDER / f"{name}.yaml")


def is_engine_overlay(path: Path) -> bool:
    """Return whether a readable file is a calibration of a serving engine, and not one of a device."""
    try:
        data = FileReader(path, {}, "calibration overlay").document.data
    except InputError:
        return False
    return "engine" in data


def read_engine_overlay(path: Path) -> ServingEngine:
    """Return the profile of an engine with the numbers that `windtunnel calibrate serving` fitted.

    Raises:
        InputError: if the file is missing or is no such overlay.
    """
    top = FileReader(path, {}, _OVERLAY).mapping(
        (), required=("schema", "engine", "model", "sku", "key", "sources", "values"), optional=("fit",)
    )
    key = str(top["key"])
    reader = FileReader(path, {**_PARAMETERS, **{p.name: replace(p, keys=(key,)) for p in FITTED}}, _OVERLAY)
    base = serving_engine(reader.choice(top["engine"], ENGINE_NAMES, ("engine",), "serving engine"))
    found = reader.values()
    for parameter in FITTED:
        if f"{parameter.name}.{key}" not in found:
            raise reader.error(("values",), f"'{parameter.name}' is missing", f"{parameter.name}: {{{key}: ...}}")
    return replace(
        base,
        frontend_s=found.get("frontend_s", base.frontend_s),
        values={**base.values, **{name: value for name, value in found.items() if "." in name}},
        fitted={**base.fitted, key: (str(top["sku"]),)},
        model=str(top["model"]),
    )


# Long: it has one expression for each key of a profile.
@cache
def _read(path: Path) -> ServingEngine:
    reader = FileReader(path, _PARAMETERS, "profile of a serving engine")
    top = reader.mapping(
        (),
        required=("schema", "engine", "doc", "kernels", "scheduling", "memory", "sources", "values"),
        optional=("fitted", "makers", "prefix_cache"),
    )
    reader.check_name("engine", path.stem)
    kernels = reader.mapping(("kernels",), required=("implementation", "fused_norms", "source"), optional=("fused_by",))
    scheduling = reader.mapping(
        ("scheduling",),
        required=("admission", "chunked_prefill", "prefill_first", "limits_of_copy", "source"),
        optional=("smallest_on",),
    )
    memory = reader.mapping(("memory",), required=("share_of", "graphs_in_share", "source"))
    cache = {}
    if "prefix_cache" in top:
        cache = reader.mapping(("prefix_cache",), required=("unless", "source"))
    for section in ("kernels", "scheduling", "memory", *(("prefix_cache",) if cache else ())):
        reader.source(reader.at((section, "source")), (section, "source"))
    values = reader.values()
    for parameter in _PARAMETERS.values():
        if parameter.required and parameter.name not in values:
            raise reader.error(("values",), f"'{parameter.name}' is missing", "a number with its source")
    for kind in KINDS:
        if f"first_token_error.{kind}" not in values:
            raise reader.error(("values", "first_token_error"), f"'{kind}' is missing", "a number with its source")
    own = reader.choice(kernels["implementation"], _LIBRARIES, ("kernels", "implementation"), "library")
    limits = []
    for size in _TIERS:
        if f"tokens.{size}" not in values:
            continue
        for name in ("sequences", *(() if size == "small" else ("from_bytes",))):
            if f"{name}.{size}" not in values:
                raise reader.error(("values", name), f"'{size}' is missing", "a number with its source")
        begins = 0.0 if size == "small" else values[f"from_bytes.{size}"].value
        limits.append(Limits(values[f"tokens.{size}"], values[f"sequences.{size}"], begins))
    if not limits or limits[0].from_bytes:
        raise reader.error(("values", "tokens"), "'small' is missing", "a number with its source")
    return ServingEngine(
        name=path.stem,
        implementation=own,
        fused=FusedNorms(
            FusedFor(
                reader.choice(
                    kernels["fused_norms"], [kind.value for kind in FusedFor], ("kernels", "fused_norms"), "decoders"
                )
            ),
            reader.choice(kernels.get("fused_by", own), _LIBRARIES, ("kernels", "fused_by"), "library"),
            values.get("fused_tokens"),
            {key: values[f"fused_bytes.{key}"] for key in _FUSED if f"fused_bytes.{key}" in values},
        ),
        limits=tuple(limits),
        limits_of_copy=bool(scheduling["limits_of_copy"]),
        smallest_on=tuple(scheduling.get("smallest_on", ())),
        memory_share=values["memory_share"],
        reserves=replace(
            Reserves(),
            share_of=ShareOf(
                reader.choice(
                    memory["share_of"], [kind.value for kind in ShareOf], ("memory", "share_of"), "reading of a share"
                )
            ),
            graphs_in_share=bool(memory["graphs_in_share"]),
            block_tokens=int(values["block_tokens"].value),
            **{name: values[name] for name in (*_RESERVES, "logit_copies") if name in values},
        ),
        admission=Admission(
            reader.choice(
                scheduling["admission"], [kind.value for kind in Admission], ("scheduling", "admission"), "admission"
            )
        ),
        chunked_prefill=bool(scheduling["chunked_prefill"]),
        prefill_first=bool(scheduling["prefill_first"]),
        makers=tuple(top.get("makers", ())),
        prefix_cache_unless=str(cache.get("unless", "")),
        frontend_s=values["frontend_s"],
        late_prompts=values["late_prompts"],
        first_token_errors={kind: values[f"first_token_error.{kind}"] for kind in KINDS},
        first_token_medians={
            kind: values[f"first_token_median.{kind}"] for kind in KINDS if f"first_token_median.{kind}" in values
        },
        values={name: value for name, value in values.items() if name.partition(".")[0] in _FITTED_NAMES},
        fitted={key: tuple(skus) for key, skus in top.get("fitted", {}).items()},
        doc=str(top["doc"]),
    )
