"""The arguments of ``trtllm-serve`` and its file of options."""

from __future__ import annotations

from windtunnel.core.results.deployment import OPTIONS_FILE
from windtunnel.core.speculation import HEADS
from windtunnel.deployment.arguments import Arguments
from windtunnel.deployment.checkpoints import WIDE, draft_id, serving_model
from windtunnel.deployment.replicas import Replicas
from windtunnel.deployment.vllm import context_note

_TARGETS = ["attn_q", "attn_k", "attn_v"]
"""The modules of the example in TensorRT-LLM's documentation of LoRA."""


def trtllm(replicas: Replicas, arguments: Arguments) -> list[str]:
    """Add the arguments of a replica; return the command and its model.

    What both the command line and the file could state is in one of them alone, because versions differ in which of
    them wins.
    """
    model, converted = serving_model(replicas.checkpoint, arguments, WIDE)
    arguments.listen()
    if converted is not None:
        arguments.option("dtype", converted)
    _division(replicas, arguments)
    _limits(replicas, arguments)
    _cache(replicas, arguments)
    if replicas.order != "arrival":
        arguments.note("order", f"{replicas.order}: trtllm-serve admits requests by arrival")
    _speculation(replicas, arguments)
    _adapters(replicas, arguments)
    if replicas.role != "both":
        _role(replicas, arguments)
    if arguments.options:
        arguments.flag("--extra_llm_api_options", OPTIONS_FILE)
    return [*arguments.known.program, model]


def _division(replicas: Replicas, arguments: Arguments) -> None:
    """Add the division; with copies of the attention, each device of a stage holds one."""
    group = replicas.group
    if group.stage_devices > 1:
        arguments.flag("--tp_size", group.stage_devices)
    if group.pipeline > 1:
        arguments.flag("--pp_size", group.pipeline)
    if group.attention_data > 1:
        if group.tensor == 1:
            arguments.option("enable_attention_dp", True)
        else:
            arguments.note(
                "group.attention_data",
                f"{group.attention_data} copies of the attention on {group.tensor} devices each: TensorRT-LLM has one "
                "copy on each device (enable_attention_dp) or one on all",
            )
        if not replicas.checkpoint.has_experts:
            arguments.note("group.attention_data", "dense layers stay divided among all devices of a stage")
    if replicas.checkpoint.has_experts and group.stage_devices > 1:
        arguments.flag("--ep_size", group.expert)
        arguments.option("moe_tensor_parallel_size", group.experts_shared_by)


def _limits(replicas: Replicas, arguments: Arguments) -> None:
    step = replicas.step
    if step is None:
        for key in ("batch.size", "batch.tokens", "batch.memory"):
            arguments.note(key, "the scenario has no continuous batching; TensorRT-LLM's own limit applies")
    else:
        tokens = replicas.a_copy(step.tokens)
        arguments.flag("--max_batch_size", replicas.a_copy(step.sequences))
        arguments.flag("--max_num_tokens", tokens)
        arguments.option("kv_cache_config.free_gpu_memory_fraction", replicas.memory_share)
        if not replicas.chunked_prefill and replicas.longest_prompt > tokens:
            arguments.note(
                "batch.tokens",
                f"prompts have up to {replicas.longest_prompt:,} tokens; without --enable_chunked_prefill those above "
                f"{tokens:,} are refused",
            )
    if replicas.chunked_prefill:
        arguments.flag("--enable_chunked_prefill")
    else:
        arguments.note("chunked_prefill", "off, as TensorRT-LLM has it without --enable_chunked_prefill")
    if replicas.context_limit is not None:
        arguments.flag("--max_seq_len", replicas.context_limit)
        arguments.note("max_context", context_note(replicas, "longer requests could not be admitted"))


def _cache(replicas: Replicas, arguments: Arguments) -> None:
    arguments.kv_dtype("kv_cache_config.dtype", replicas.checkpoint.stated_kv_dtype)
    cache = replicas.prefix_cache
    arguments.option("kv_cache_config.enable_block_reuse", cache is not None)
    if cache is None:
        return
    if cache.block is not None:
        if cache.block > 1 and cache.block & (cache.block - 1) == 0:
            arguments.option("kv_cache_config.tokens_per_block", cache.block)
        else:
            arguments.note("prefix_cache.block", f"{cache.block}: a block of TensorRT-LLM has a power of two of tokens")
    if cache.blocks is not None:
        text = f"{cache.blocks:,} blocks in memory of their own: TensorRT-LLM shares the KV memory with sequences"
        arguments.note("prefix_cache.blocks", text)
    if cache.host is not None:
        # Of each rank.
        arguments.option("kv_cache_config.host_cache_size", int(cache.host.size // replicas.group.devices))
    if cache.disk is not None:
        text = (
            f"{cache.disk.size / 1e12:.3g} TB on disks: only the KV cache manager V2 of later versions has such a tier"
        )
        arguments.note("prefix_cache.disk", text)


def _speculation(replicas: Replicas, arguments: Arguments) -> None:
    speculation = replicas.speculation
    if speculation is None:
        return
    name, draft = speculation.draft.name, draft_id(replicas.checkpoint, speculation, arguments)
    kind = arguments.value("speculative_config.decoding_type", name) if name in HEADS else "DraftTarget"
    if kind is None:
        arguments.note("speculation", f"{name}: the PyTorch backend of TensorRT-LLM has no such draft")
        return
    arguments.option("speculative_config.decoding_type", kind)
    arguments.option("speculative_config.max_draft_len", speculation.tokens)
    if draft is not None:
        arguments.option("speculative_config.speculative_model", draft)
    if name == "mtp":
        arguments.option("speculative_config.num_nextn_predict_layers", speculation.tokens)
    if name == "eagle":
        arguments.note("speculation", "the draft must be an EAGLE-3 checkpoint")
    if speculation.tensor not in (None, replicas.group.tensor):
        arguments.note("speculation", f"a draft on {speculation.tensor} devices: it is divided as the model")


def _adapters(replicas: Replicas, arguments: Arguments) -> None:
    adapters = replicas.adapters
    if adapters is None:
        return
    arguments.option("lora_config.max_lora_rank", adapters.rank)
    arguments.option("lora_config.max_loras", adapters.slots)
    arguments.option("lora_config.max_cpu_loras", max(adapters.host, adapters.slots))
    arguments.option("lora_config.lora_target_modules", _TARGETS)
    arguments.note(
        "adapters",
        f"lora_target_modules must be those of the {adapters.count:,} adapters; each request names its adapter with "
        "its path (`lora_request`)",
    )


def _role(replicas: Replicas, arguments: Arguments) -> None:
    if replicas.role == "prefill":
        arguments.option("disable_overlap_scheduler", True)
    arguments.option("cache_transceiver_config.backend", "NIXL")
    if replicas.longest_prompt:
        arguments.option("cache_transceiver_config.max_tokens_in_buffer", replicas.longest_prompt)
    arguments.note("role", "trtllm-serve disaggregated -c disaggregated.yaml joins the servers")
