"""Time whole steps of decoders on a CUDA device: every layer, the output projection and the choice of the token.

    python benchmarks/gpu/decoder_steps.py --models DIR --out steps.csv       # on the device: PyTorch with Triton
    windtunnel validate --against steps.csv --op step --device h200-sxm-141gb

Weights are random and the context is filled with random keys and values, so the tokens mean nothing, but the work is
that of the model. A step is one CUDA graph of PyTorch's GEMMs (cuBLAS) and attention (the faster of FlashAttention and
cuDNN's), and of three kernels in Triton: normalisation with the residual, rotary positions with the write to the
cache, and SwiGLU. There is no engine: no scheduler, no blocks of a cache, no sampling but the largest logit. Steps
are repeated for a second before they are timed for a second, by CUDA events, and the power is that of NVML's energy
counter over the timed second.

The columns are those of the operation `step`. DIR has a `config.json` of each model as NAME.json. Imports nothing of
Windtunnel.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LEAST_S = 1.0
FREE_BYTES = 6e9
STEPS: dict[str, tuple[list[tuple[int, int]], list[int]]] = {
    "llama-3.1-8b": (
        [(b, c) for c in (512, 2048, 8192) for b in (1, 8, 32, 128, 256)],
        [128, 512, 2048, 8192, 16384],
    ),
    "qwen3-0.6b": ([(1, 1024), (16, 1024), (128, 1024)], [512, 4096]),
    "llama-2-7b": ([(1, 1024), (16, 1024), (64, 1024)], [1024]),
    "qwen3-32b": ([(1, 2048), (16, 2048), (64, 2048), (128, 1024)], [512, 2048, 8192]),
}
"""By model: sequences and tokens of context of the steps that decode, and the tokens of prompts."""


@triton.jit
def _norm(x, residual, weight, out, width: tl.constexpr, block: tl.constexpr, add: tl.constexpr):  # type: ignore[no-untyped-def]
    """out = norm(x + residual) * weight, a row for each program; the sum replaces the residual."""
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    mask = i < width
    v = tl.load(x + row * width + i, mask, 0.0).to(tl.float32)
    if add:
        v += tl.load(residual + row * width + i, mask, 0.0).to(tl.float32)
        tl.store(residual + row * width + i, v.to(tl.bfloat16), mask)
    scale = 1.0 / tl.sqrt(tl.sum(v * v) / width + 1e-5)
    tl.store(out + row * width + i, (v * scale * tl.load(weight + i, mask, 0.0).to(tl.float32)).to(tl.bfloat16), mask)


@triton.jit
def _rotate(  # type: ignore[no-untyped-def]
    qkv, cosines, sines, q_norm, k_norm, cache_k, cache_v, position, stride, per_sequence,
    heads: tl.constexpr, kv_heads: tl.constexpr, dim: tl.constexpr, normed: tl.constexpr,
):  # fmt: skip
    """Rotate a token's queries in place and its keys into the cache, copy its values.

    A program has one token and one head. Token t belongs to sequence t // per_sequence, at `position` plus the rest.
    """
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = position + token % per_sequence
    row = qkv + token * (heads + 2 * kv_heads) * dim + head * dim
    half, i = dim // 2, tl.arange(0, dim // 2)
    low, high = tl.load(row + i).to(tl.float32), tl.load(row + half + i).to(tl.float32)
    entry = (token // per_sequence * stride + at) * kv_heads * dim
    if head >= heads + kv_heads:
        to = cache_v + entry + (head - heads - kv_heads) * dim
        tl.store(to + i, low.to(tl.bfloat16))
        tl.store(to + half + i, high.to(tl.bfloat16))
    else:
        if normed:
            weight = q_norm
            if head >= heads:
                weight = k_norm
            scale = 1.0 / tl.sqrt((tl.sum(low * low) + tl.sum(high * high)) / dim + 1e-5)
            low *= scale * tl.load(weight + i).to(tl.float32)
            high *= scale * tl.load(weight + half + i).to(tl.float32)
        c, s = tl.load(cosines + at * half + i), tl.load(sines + at * half + i)
        first, second = low * c - high * s, high * c + low * s
        to = row
        if head >= heads:
            to = cache_k + entry + (head - heads) * dim
        tl.store(to + i, first.to(tl.bfloat16))
        tl.store(to + half + i, second.to(tl.bfloat16))


@triton.jit
def _swiglu(x, out, width, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * block + tl.arange(0, block)
    mask = i < width
    gate = tl.load(x + row * 2 * width + i, mask, 0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + i, mask, 0.0).to(tl.float32)
    tl.store(out + row * width + i, (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16), mask)


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    ffn: int
    vocabulary: int
    theta: float
    normed: bool

    @classmethod
    def read(cls, path: Path) -> Shape:
        c = json.loads(path.read_text())
        heads = c["num_attention_heads"]
        return cls(
            c["num_hidden_layers"], c["hidden_size"], heads, c.get("num_key_value_heads", heads),
            c.get("head_dim") or c["hidden_size"] // heads, c["intermediate_size"], c["vocab_size"],
            c.get("rope_theta", 1e4), c["model_type"] == "qwen3",
        )  # fmt: skip


class Decoder:
    """Weights of one model, and one step over a cache of ``sequences`` times ``tokens``."""

    def __init__(self, shape: Shape, positions: int) -> None:
        self.shape, s = shape, shape
        outputs = (s.heads + 2 * s.kv_heads) * s.dim

        def random(*size: int) -> torch.Tensor:
            return torch.empty(size, dtype=torch.bfloat16, device=DEVICE).normal_(0.0, 0.02)

        def ones(n: int) -> torch.Tensor:
            return torch.empty(n, dtype=torch.bfloat16, device=DEVICE).uniform_(0.9, 1.1)

        self.layers = [
            (ones(s.hidden), random(outputs, s.hidden), ones(s.dim), ones(s.dim), random(s.hidden, s.heads * s.dim),
             ones(s.hidden), random(2 * s.ffn, s.hidden), random(s.hidden, s.ffn))
            for _ in range(s.layers)
        ]  # fmt: skip
        self.embedding, self.final, self.output = (
            random(s.vocabulary, s.hidden),
            ones(s.hidden),
            random(s.vocabulary, s.hidden),
        )
        frequency = s.theta ** (-torch.arange(0, s.dim // 2, device=DEVICE, dtype=torch.float32) * 2 / s.dim)
        angle = torch.arange(positions, device=DEVICE, dtype=torch.float32)[:, None] * frequency
        self.cosines, self.sines = angle.cos().contiguous(), angle.sin().contiguous()

    def cache(self, sequences: int, tokens: int) -> torch.Tensor:
        s = self.shape
        size = (s.layers, 2, sequences, tokens, s.kv_heads, s.dim)
        return torch.empty(size, dtype=torch.bfloat16, device=DEVICE).normal_()

    def norm(self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        width = x.shape[-1]
        _norm[(x.shape[0],)](
            x, x if residual is None else residual, weight, out, width, triton.next_power_of_2(width),
            residual is not None, num_warps=8,
        )  # fmt: skip
        return out

    def step(
        self, tokens: torch.Tensor, cache: torch.Tensor, position: int, per_sequence: int, backend: SDPBackend
    ) -> torch.Tensor:
        """Logits of the last token of each sequence: shape (sequences, vocabulary).

        Parameters: ids of shape (sequences * per_sequence,); the first position that they have.
        """
        s, count = self.shape, tokens.shape[0]
        sequences = count // per_sequence
        residual = self.embedding[tokens]
        x: torch.Tensor | None = None
        groups = s.heads // s.kv_heads
        for layer, (first, qkv_weight, q_norm, k_norm, out_weight, second, up, down) in enumerate(self.layers):
            normed = self.norm(residual, None, first) if x is None else self.norm(x, residual, first)
            qkv = linear(normed, qkv_weight)
            keys, values = cache[layer]
            stride = keys.stride(0) // (s.kv_heads * s.dim)
            _rotate[(count, s.heads + 2 * s.kv_heads)](
                qkv, self.cosines, self.sines, q_norm, k_norm, keys, values, position, stride, per_sequence,
                s.heads, s.kv_heads, s.dim, s.normed, num_warps=1,
            )  # fmt: skip
            q = qkv.view(count, -1)[:, : s.heads * s.dim]
            length = position + per_sequence
            k, v = keys[:, :length].transpose(1, 2), values[:, :length].transpose(1, 2)
            with sdpa_kernel(backend):
                if per_sequence == 1:
                    # The queries of the heads that share keys are rows of one product, as in engines' kernels.
                    q = q.reshape(sequences, s.kv_heads, groups, s.dim)
                    y = scaled_dot_product_attention(q, k, v).reshape(count, s.heads * s.dim)
                else:
                    q = q.view(sequences, per_sequence, s.heads, s.dim).transpose(1, 2)
                    y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups > 1)
                    y = y.transpose(1, 2).reshape(count, s.heads * s.dim)
            normed = self.norm(linear(y, out_weight), residual, second)
            both = linear(normed, up)
            x = torch.empty(count, s.ffn, dtype=torch.bfloat16, device=DEVICE)
            _swiglu[(count, triton.cdiv(s.ffn, 1024))](both, x, s.ffn, 1024, num_warps=4)
            x = linear(x, down)
        assert x is not None
        last = self.norm(x, residual, self.final).view(sequences, per_sequence, -1)[:, -1]
        return linear(last, self.output)


def reference(
    model: Decoder, tokens: torch.Tensor, cache: torch.Tensor, position: int, per_sequence: int
) -> torch.Tensor:
    """The logits in float64, with none of the kernels: what the step is checked against."""
    s, count = model.shape, tokens.shape[0]
    sequences = count // per_sequence

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight.double()

    def rotate(x: torch.Tensor) -> torch.Tensor:
        c = model.cosines[position : position + per_sequence].double()[None, :, None]
        n = model.sines[position : position + per_sequence].double()[None, :, None]
        low, high = x.chunk(2, -1)
        return torch.cat((low * c - high * n, high * c + low * n), -1)

    x = model.embedding[tokens].double().view(sequences, per_sequence, -1)
    for layer, (first, qkv_weight, q_norm, k_norm, out_weight, second, up, down) in enumerate(model.layers):
        y = (norm(x, first) @ qkv_weight.double().T).view(sequences, per_sequence, -1, s.dim)
        q, k, v = y.split([s.heads, s.kv_heads, s.kv_heads], 2)
        if s.normed:
            q, k = norm(q, q_norm), norm(k, k_norm)
        keys, values = cache[layer].double().clone()
        q, length = rotate(q), position + per_sequence
        keys[:, position:length], values[:, position:length] = rotate(k), v
        keys, values = (t[:, :length].repeat_interleave(s.heads // s.kv_heads, 2) for t in (keys, values))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) / math.sqrt(s.dim)
        late = torch.arange(length, device=DEVICE)[None] > position + torch.arange(per_sequence, device=DEVICE)[:, None]
        weights = scores.masked_fill(late, -math.inf).softmax(-1)
        x = (
            x
            + torch.einsum("bhqk,bkhd->bqhd", weights, values).reshape(sequences, per_sequence, -1)
            @ out_weight.double().T
        )
        gate, value = (norm(x, second) @ up.double().T).chunk(2, -1)
        x = x + (gate * torch.sigmoid(gate) * value) @ down.double().T
    return norm(x[:, -1], model.final) @ model.output.double().T


BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION] if DEVICE == "cuda" else [SDPBackend.MATH]


def check() -> float:
    """The largest relative error of the logits of small models, by norm, over both kinds of steps and all backends."""
    worst = 0.0
    for normed in (False, True):
        for kv_heads in (2, 8):
            model = Decoder(Shape(2, 256, 8, kv_heads, 64, 512, 1000, 1e4, normed), 300)
            for per_sequence, position in ((1, 129), (48, 0)):
                cache = model.cache(3, 200)
                tokens = torch.randint(0, 1000, (3 * per_sequence,), device=DEVICE)
                expected = reference(model, tokens, cache, position, per_sequence)
                for backend in BACKENDS:
                    got = model.step(tokens, cache.clone(), position, per_sequence, backend).double()
                    worst = max(worst, float((got - expected).norm() / expected.norm()))
    return worst


def timed(run: Callable[[], Any], energy_j: Callable[[], float], least_s: float = LEAST_S) -> tuple[float, int, float]:
    """Seconds of a call, calls that were timed, and joules of a call, after as long a time unmeasured."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    torch.cuda.synchronize()
    start.record()
    run()
    stop.record()
    torch.cuda.synchronize()
    count = max(3, math.ceil(least_s / (start.elapsed_time(stop) / 1e3)))
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    before, at = energy_j(), time.perf_counter()
    start.record()
    for _ in range(count):
        run()
    stop.record()
    torch.cuda.synchronize()
    spent, wall = energy_j() - before, time.perf_counter() - at
    duration_s = start.elapsed_time(stop) / 1e3 / count
    return duration_s, count, spent / wall * duration_s


def measure(
    model: Decoder, sequences: int, position: int, per_sequence: int, energy_j: Callable[[], float]
) -> dict[str, Any]:
    """One row: the faster backend of attention, timed as a graph."""
    cache = model.cache(sequences, position + per_sequence)
    tokens = torch.randint(0, model.shape.vocabulary, (sequences * per_sequence,), device=DEVICE)
    found: dict[str, Any] = {}
    for backend in BACKENDS:

        def step(backend: SDPBackend = backend) -> torch.Tensor:
            return model.step(tokens, cache, position, per_sequence, backend).float().argmax(-1)

        try:
            torch.cuda.synchronize()  # the operands are made in another stream
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            quick, _, _ = timed(graph.replay, energy_j, 0.1)
        except RuntimeError as error:
            print("   ", backend.name, str(error).splitlines()[0], flush=True)
            continue
        if not found or quick < found["quick"]:
            found = {"quick": quick, "graph": graph, "attention": backend.name}
        else:
            graph.reset()
    duration_s, count, energy = timed(found["graph"].replay, energy_j)
    found["graph"].reset()
    return {"latency_s": duration_s, "power_w": energy / duration_s, "steps": count, "attention": found["attention"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", action="append", choices=[*STEPS], help="of these models only; repeatable")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no further step is begun")
    given = parser.parse_args()
    began = time.perf_counter()
    torch.manual_seed(1)
    error = check()
    print(f"logits of small models: relative error {error:.2e} of float64", flush=True)
    assert error < 3e-2, "the step does not compute the model"
    if DEVICE == "cpu":
        return
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def energy_j() -> float:
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # type: ignore[no-any-return]

    fields = ["model", "decode", "context", "prefill", "dispatch", "clock", "cache", "latency_s", "power_w", "steps",
              "attention", "sm_mhz", "device", "torch"]  # fmt: skip
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        for name, (decodes, prompts) in STEPS.items():
            if given.model and name not in given.model:
                continue
            shape = Shape.read(given.models / f"{name}.json")
            model = Decoder(shape, 20000)
            per_token = 2 * shape.layers * shape.kv_heads * shape.dim * 2
            for sequences, position, tokens in [(b, c - 1, 1) for b, c in decodes] + [(1, 0, t) for t in prompts]:
                room = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
                if sequences * (position + tokens) * per_token > room - FREE_BYTES:
                    print(name, sequences, position, "does not fit", flush=True)
                    continue
                if time.perf_counter() - began > given.budget:
                    print(name, sequences, position, tokens, "no time left", flush=True)
                    continue
                row = measure(model, sequences, position, tokens, energy_j)
                mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
                decode = {"decode": sequences, "context": position + 1, "prefill": 0}
                prefill = {"decode": 0, "context": 0, "prefill": tokens}
                writer.writerow(
                    {"model": name, **(decode if tokens == 1 else prefill), "dispatch": "graph", "clock": "sustained",
                     "cache": "cold", "sm_mhz": mhz, "device": torch.cuda.get_device_name(),
                     "torch": torch.__version__} | row
                )  # fmt: skip
                file.flush()
                print(name, sequences, position, tokens, row, flush=True)
                torch.cuda.empty_cache()
            del model
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
