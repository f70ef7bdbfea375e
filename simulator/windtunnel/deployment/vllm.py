"""The arguments of ``vllm serve``."""

from __future__ import annotations

from windtunnel.core.results.deployment import FIRST_NODE, NODE_RANK, POD_IP
from windtunnel.core.speculation import HEADS
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.checkpoints import draft_id, serving_model
from windtunnel.deployment.replicas import Replicas

_GIB = 2.0**30
_LONGEST_BLOCK = 128


def vllm(replicas: Replicas, arguments: Arguments) -> list[str]:
    """Add the arguments of a replica; return the command and its model."""
    if replicas.engine != "vllm":
        arguments.note("engine", f"{replicas.engine}: the scenario names no engine; these are vLLM's arguments")
    model, converted = serving_model(replicas.checkpoint, arguments)
    arguments.listen()
    if converted is not None:
        arguments.flag("--quantization" if converted == "fp8" else "--dtype", converted)
    _division(replicas, arguments)
    _limits(replicas, arguments)
    _cache(replicas, arguments)
    if replicas.order == "priority":
        arguments.flag("--scheduling-policy", "priority")
        arguments.note("order", "each request must carry its `priority`; lower values are served first in vLLM")
    elif replicas.order != "arrival":
        arguments.note("order", f"{replicas.order}: vLLM admits requests by arrival or by priority")
    _speculation(replicas, arguments)
    _adapters(replicas, arguments)
    if replicas.role != "both":
        role = arguments.value("--kv-transfer-config.kv_role", replicas.role)
        arguments.json("--kv-transfer-config", {"kv_connector": "NixlConnector", "kv_role": role})
        arguments.variable("VLLM_NIXL_SIDE_CHANNEL_HOST", POD_IP)
        arguments.variable("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")
        arguments.note(
            "role",
            "a proxy must send each request first to a prefill server and then to a decode server (vLLM's "
            "disaggregated_prefill examples, or a router such as llm-d)",
        )
    return [*arguments.known.program, model]


def _division(replicas: Replicas, arguments: Arguments) -> None:
    group = replicas.group
    if group.tensor > 1:
        arguments.flag("--tensor-parallel-size", group.tensor)
    if group.pipeline > 1:
        arguments.flag("--pipeline-parallel-size", group.pipeline)
    if group.attention_data > 1:
        arguments.flag("--data-parallel-size", group.attention_data)
    if replicas.equal_nodes:
        arguments.flag("--nnodes", replicas.nodes)
        arguments.flag("--node-rank", NODE_RANK)
        arguments.flag("--master-addr", FIRST_NODE)
        arguments.worker_flag("--headless")
    if not replicas.checkpoint.has_experts or group.stage_devices == 1:
        return
    if group.expert == group.stage_devices:
        arguments.flag("--enable-expert-parallel")
    elif group.expert == 1:
        arguments.note("group.expert", "1: without --enable-expert-parallel all devices of a stage share each expert")
    else:
        arguments.note(
            "group.expert",
            f"{group.expert} parts of the experts on {group.stage_devices} devices: vLLM has 1 part or "
            f"{group.stage_devices} (--enable-expert-parallel)",
        )


def _limits(replicas: Replicas, arguments: Arguments) -> None:
    step = replicas.step
    if step is None:
        for key in ("batch.size", "batch.tokens", "batch.memory"):
            arguments.note(key, "the scenario has no continuous batching; vLLM's own limit applies")
    else:
        arguments.flag("--max-num-seqs", replicas.a_copy(step.sequences))
        arguments.flag("--max-num-batched-tokens", replicas.a_copy(step.tokens))
        arguments.flag("--gpu-memory-utilization", replicas.memory_share)
    arguments.flag("--enable-chunked-prefill" if replicas.chunked_prefill else "--no-enable-chunked-prefill")
    if replicas.context_limit is not None:
        arguments.flag("--max-model-len", replicas.context_limit)
        arguments.note("max_context", context_note(replicas, "vLLM does not start otherwise"))


def context_note(replicas: Replicas, why: str) -> str:
    """Return why a longest context is stated."""
    return (
        f"the cache has room for about {replicas.cache_tokens:,} tokens, and the model supports "
        f"{replicas.checkpoint.model.max_context:,}; {why}. The longest request of the scenario has "
        f"{replicas.longest:,}"
    )


def _cache(replicas: Replicas, arguments: Arguments) -> None:
    arguments.kv_dtype("--kv-cache-dtype", replicas.checkpoint.stated_kv_dtype)
    cache = replicas.prefix_cache
    arguments.flag("--no-enable-prefix-caching" if cache is None else "--enable-prefix-caching")
    if cache is None:
        return
    if cache.block is not None:
        if cache.block % 16 == 0 and cache.block <= _LONGEST_BLOCK:
            arguments.flag("--block-size", cache.block)
        else:
            text = f"{cache.block}: vLLM's attention kernels take multiples of 16 up to {_LONGEST_BLOCK}"
            arguments.note("prefix_cache.block", text)
    if cache.blocks is not None:
        text = f"{cache.blocks:,} blocks in memory of their own: vLLM shares the KV memory with the running sequences"
        arguments.note("prefix_cache.blocks", text)
    if cache.host is not None and replicas.role != "both":
        # --kv-offloading-size replaces the connector of --kv-transfer-config (VllmConfig).
        text = (
            f"{cache.host.size / 1e9:.6g} GB in host memory: beside the transfer of KV caches it needs a MultiConnector"
        )
        arguments.note("prefix_cache.host", text)
    elif cache.host is not None:
        # The size is that of all ranks of one engine; each copy of the attention is an engine of its own.
        size = cache.host.size / replicas.group.attention_data / _GIB
        arguments.flag("--kv-offloading-size", f"{size:.6g}")
        arguments.flag("--kv-offloading-backend", "native")
    if cache.disk is not None:
        arguments.note(
            "prefix_cache.disk",
            f"{cache.disk.size / 1e12:.3g} TB on disks: needs a connector with storage, such as LMCache "
            "(--kv-offloading-backend lmcache and its own configuration)",
        )


def _speculation(replicas: Replicas, arguments: Arguments) -> None:
    speculation = replicas.speculation
    if speculation is None:
        return
    name = speculation.draft.name
    config: dict[str, object] = {"method": name if name in HEADS else "draft_model"}
    draft = draft_id(replicas.checkpoint, speculation, arguments)
    if draft is not None:
        config["model"] = draft
    config["num_speculative_tokens"] = speculation.tokens
    if speculation.draft.model is not None and name != "mtp":
        config["draft_tensor_parallel_size"] = speculation.tensor or replicas.group.tensor
    arguments.json("--speculative-config", config)
    if name == "medusa":
        arguments.note("speculation", "medusa: not in vLLM 0.33.0 any more")


def _adapters(replicas: Replicas, arguments: Arguments) -> None:
    adapters = replicas.adapters
    if adapters is None:
        return
    ranks = [int(str(rank)) for rank in arguments.known.flags["--max-lora-rank"].choices]
    arguments.flag("--enable-lora")
    arguments.flag("--max-loras", adapters.slots)
    rank = next((rank for rank in ranks if rank >= adapters.rank), None)
    if rank is not None:
        arguments.flag("--max-lora-rank", rank)
    if rank != adapters.rank:
        arguments.note("adapters", f"rank {adapters.rank}: vLLM has slots of rank {', '.join(map(str, ranks))}")
    arguments.flag("--max-cpu-loras", max(adapters.host, adapters.slots))
    arguments.note(
        "adapters", f"the {adapters.count:,} adapters themselves: --lora-modules NAME=PATH ..., or loaded at run time"
    )
