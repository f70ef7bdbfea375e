"""The arguments of ``python -m sglang.launch_server``."""

from __future__ import annotations

import math

from windtunnel.core.results.deployment import FIRST_NODE, NODE_RANK
from windtunnel.core.speculation import HEADS
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.checkpoints import draft_id, serving_model
from windtunnel.deployment.replicas import Replicas
from windtunnel.deployment.vllm import context_note

_MAX_PREFILL_TOKENS = 16_384
"""SGLang's own ``--max-prefill-tokens``, above which a chunk is not read whole."""

_GROUP_PORT = 20_000
"""The port on which the nodes of a replica find each other, as in SGLang's examples."""


def sglang(replicas: Replicas, arguments: Arguments) -> list[str]:
    """Add the arguments of a replica; return the command."""
    model, converted = serving_model(replicas.checkpoint, arguments)
    arguments.flag("--model-path", model)
    arguments.listen()
    if converted is not None:
        arguments.flag("--quantization" if converted == "fp8" else "--dtype", converted)
    _division(replicas, arguments)
    _limits(replicas, arguments)
    _cache(replicas, arguments)
    if replicas.order == "priority":
        arguments.flag("--enable-priority-scheduling")
        arguments.note("order", "each request must carry its `priority`; higher values are served first")
    elif replicas.order != "arrival":
        arguments.note("order", f"{replicas.order}: SGLang admits requests by arrival, by prefix or by priority")
    _speculation(replicas, arguments)
    _adapters(replicas, arguments)
    if replicas.role != "both":
        arguments.flag("--disaggregation-mode", arguments.value("--disaggregation-mode", replicas.role))
        arguments.flag("--disaggregation-transfer-backend", "nixl")
        arguments.note(
            "role",
            "a router must join the servers: python -m sglang_router.launch_router --pd-disaggregation --prefill URL "
            "... --decode URL ...",
        )
    return list(arguments.known.program)


def _plain_copies(replicas: Replicas) -> bool:
    """Return whether the copies of the attention are servers of their own behind SGLang's dispatcher."""
    return replicas.group.attention_data > 1 and not replicas.checkpoint.has_experts


def _division(replicas: Replicas, arguments: Arguments) -> None:
    """Add the division: with copies of the attention, ``--tp-size`` counts all devices of a stage.

    Without experts a copy of the attention is a copy of the whole decoder, which ``--dp-size`` alone makes.
    """
    group = replicas.group
    plain = _plain_copies(replicas)
    tensor = group.tensor if plain else group.stage_devices
    if tensor > 1:
        arguments.flag("--tp-size", tensor)
    elif group.tensor > 1:
        arguments.flag("--tp-size", group.tensor)
    if group.pipeline > 1:
        arguments.flag("--pp-size", group.pipeline)
    if group.attention_data > 1:
        arguments.flag("--dp-size", group.attention_data)
        if not plain:
            arguments.flag("--enable-dp-attention")
    if replicas.checkpoint.has_experts and group.stage_devices > 1:
        arguments.flag("--ep-size", group.expert)
    if replicas.equal_nodes and not plain:
        arguments.flag("--nnodes", replicas.nodes)
        arguments.flag("--node-rank", NODE_RANK)
        arguments.flag("--dist-init-addr", f"{FIRST_NODE}:{_GROUP_PORT}")
        arguments.worker_flags = []


def _limits(replicas: Replicas, arguments: Arguments) -> None:
    step = replicas.step
    if step is None:
        for key in ("batch.size", "batch.tokens", "batch.memory"):
            arguments.note(key, "the scenario has no continuous batching; SGLang's own limit applies")
        arguments.note("chunked_prefill", "SGLang reads prompts in chunks of its own size")
    else:
        plain = _plain_copies(replicas)
        # --max-running-requests counts those of all copies, --chunked-prefill-size too unless copies are servers.
        chunk = replicas.a_copy(step.tokens) if plain else step.tokens
        arguments.flag("--max-running-requests", step.sequences)
        arguments.flag("--chunked-prefill-size", chunk)
        if chunk > _MAX_PREFILL_TOKENS:
            arguments.flag("--max-prefill-tokens", chunk)
        arguments.flag("--mem-fraction-static", replicas.memory_share)
        arguments.note("chunked_prefill", "on, with the size of --chunked-prefill-size")
    if replicas.context_limit is not None:
        arguments.flag("--context-length", replicas.context_limit)
        arguments.note("max_context", context_note(replicas, "longer requests would be aborted"))


def _cache(replicas: Replicas, arguments: Arguments) -> None:
    arguments.kv_dtype("--kv-cache-dtype", replicas.checkpoint.stated_kv_dtype)
    cache = replicas.prefix_cache
    if cache is None:
        arguments.flag("--disable-radix-cache")
        return
    arguments.note("prefix_cache", "on, as SGLang has it without an argument")
    if cache.block is not None:
        arguments.flag("--page-size", cache.block)
    if cache.blocks is not None:
        text = f"{cache.blocks:,} blocks in memory of their own: SGLang shares the KV memory with running sequences"
        arguments.note("prefix_cache.blocks", text)
    if cache.host is not None or cache.disk is not None:
        arguments.flag("--enable-hierarchical-cache")
    if cache.host is not None:
        # In gigabytes of each rank.
        arguments.flag("--hicache-size", max(math.floor(cache.host.size / replicas.group.devices / 1e9), 1))
    if cache.disk is not None:
        arguments.flag("--hicache-storage-backend", "file")
        arguments.note(
            "prefix_cache.disk", f"the size ({cache.disk.size / 1e12:.3g} TB) is that of the folder's file system"
        )
        if cache.host is None:
            arguments.note("prefix_cache.disk", "SGLang reads disks through host memory, of --hicache-ratio's size")


def _speculation(replicas: Replicas, arguments: Arguments) -> None:
    speculation = replicas.speculation
    if speculation is None:
        return
    name, draft = speculation.draft.name, draft_id(replicas.checkpoint, speculation, arguments)
    algorithm = arguments.value("--speculative-algorithm", name) if name in HEADS else "STANDALONE"
    if algorithm is None:
        arguments.note("speculation", f"{name}: SGLang has no such draft")
        return
    arguments.flag("--speculative-algorithm", algorithm)
    if draft is not None:
        arguments.flag("--speculative-draft-model-path", draft)
    if name != "ngram":
        arguments.flag("--speculative-num-steps", speculation.tokens)
        arguments.flag("--speculative-eagle-topk", 1)
    arguments.flag("--speculative-num-draft-tokens", speculation.tokens + 1)
    if algorithm == "STANDALONE" and replicas.group.attention_data > 1 and not _plain_copies(replicas):
        arguments.note("speculation", "SGLang refuses a draft model together with copies of the attention")
    if speculation.tensor not in (None, replicas.group.tensor):
        arguments.note("speculation", f"a draft on {speculation.tensor} devices: SGLang divides it as the model")


def _adapters(replicas: Replicas, arguments: Arguments) -> None:
    adapters = replicas.adapters
    if adapters is None:
        return
    arguments.flag("--enable-lora")
    # The model without an adapter takes a slot too.
    arguments.flag("--max-loras-per-batch", adapters.slots + 1)
    arguments.flag("--max-lora-rank", adapters.rank)
    arguments.flag("--max-loaded-loras", max(adapters.host, adapters.slots + 1))
    arguments.flag("--lora-target-modules", "all")
    arguments.note(
        "adapters", f"the {adapters.count:,} adapters themselves: --lora-paths NAME=PATH ..., or /load_lora_adapter"
    )
    if replicas.speculation is not None and replicas.speculation.draft.name != "ngram":
        arguments.note("adapters", "SGLang 0.5.9 refuses adapters together with a draft other than ngram")
