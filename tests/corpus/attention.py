"""Attention: tiles of keys and values in shared memory with an online softmax; plain, causal, and one query at a time."""

import math

import numpy as np
import scipy.special
from tests.corpus.registry import Case, Empty

import windtunnel
from windtunnel import blockIdx, f32, i32, local, shared, shfl_xor_sync, syncthreads, threadIdx

DIM = 16
TILE = 16
FULL = 0xFFFFFFFF


@windtunnel.kernel
def flash_attention(
    q: f32[:, :, :], k: f32[:, :, :], v: f32[:, :, :], out: f32[:, :, :], tokens: i32, scale: f32, causal: i32
):
    # A block a head and a tile of queries, a thread a query; keys and values pass by in tiles.
    keys = shared.array((TILE, DIM), f32)
    values = shared.array((TILE, DIM), f32)
    query = local.array(DIM, f32)
    total = local.array(DIM, f32)
    t = threadIdx.x
    head = blockIdx.y
    row = blockIdx.x * TILE + t
    for d in range(DIM):
        query[d] = q[head, row, d] * scale if row < tokens else 0.0
        total[d] = 0.0
    highest = f32(-math.inf)
    weight = f32(0.0)
    for start in range(0, tokens, TILE):
        if start + t < tokens:
            for d in range(DIM):
                keys[t, d] = k[head, start + t, d]
                values[t, d] = v[head, start + t, d]
        syncthreads()
        for j in range(min(TILE, tokens - start)):
            if causal != 0 and start + j > row:
                break
            score = f32(0.0)
            for d in range(DIM):
                score += query[d] * keys[j, d]
            new_highest = max(highest, score)
            shrink = math.exp(highest - new_highest)
            p = math.exp(score - new_highest)
            weight = weight * shrink + p
            for d in range(DIM):
                total[d] = total[d] * shrink + p * values[j, d]
            highest = new_highest
        syncthreads()
    if row < tokens:
        for d in range(DIM):
            out[head, row, d] = total[d] / weight


@windtunnel.kernel
def decode_attention(q: f32[:, :], k: f32[:, :, :], v: f32[:, :, :], lengths: i32[:], out: f32[:, :], scale: f32):
    # One query a sequence: a warp takes every 32nd key, then the lanes' partial softmaxes are merged.
    lane = threadIdx.x
    sequence = blockIdx.x
    highest = f32(-1e30)
    weight = f32(0.0)
    total = local.array(DIM, f32)
    for d in range(DIM):
        total[d] = 0.0
    for j in range(lane, lengths[sequence], 32):
        score = f32(0.0)
        for d in range(DIM):
            score += q[sequence, d] * k[sequence, j, d]
        score *= scale
        new_highest = max(highest, score)
        shrink = math.exp(highest - new_highest)
        p = math.exp(score - new_highest)
        weight = weight * shrink + p
        for d in range(DIM):
            total[d] = total[d] * shrink + p * v[sequence, j, d]
        highest = new_highest
    top = highest
    mask = 16
    while mask > 0:
        top = max(top, shfl_xor_sync(FULL, top, mask))
        mask >>= 1
    shrink = math.exp(highest - top)
    weight *= shrink
    mask = 16
    while mask > 0:
        weight += shfl_xor_sync(FULL, weight, mask)
        mask >>= 1
    for d in range(DIM):
        part = total[d] * shrink
        mask = 16
        while mask > 0:
            part += shfl_xor_sync(FULL, part, mask)
            mask >>= 1
        if lane == 0:
            out[sequence, d] = part / weight


def _arguments(tokens: int, causal: int):
    def make(rng: np.random.Generator):
        q, k, v = (rng.standard_normal((2, tokens, DIM), dtype=np.float32) for _ in "qkv")
        return {
            "q": q, "k": k, "v": v, "out": Empty((2, tokens, DIM), np.float32), "tokens": tokens, "scale": 1 / math.sqrt(DIM), "causal": causal,
        }  # fmt: skip

    return make


def _attended(q, k, v, out, tokens, scale, causal):
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k) * scale
    if causal:
        scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    return {"out": (scipy.special.softmax(scores, axis=2) @ v).astype(np.float32)}


def _decoded(q, k, v, lengths, out, scale):
    for s, length in enumerate(lengths):
        weights = scipy.special.softmax(k[s, :length].astype(np.float64) @ q[s] * scale)
        out[s] = weights @ v[s, :length]
    return {"out": out}


NEAR = {"exact": False, "rtol": 1e-5, "atol": 1e-5, "reason": "exponentials and sums of f32"}

CASES = (
    Case("flash_attention", flash_attention, (3, 2), TILE, _arguments(37, 0), _attended, **NEAR, notes="ragged last tiles of queries and keys"),
    Case(
        "flash_attention_causal", flash_attention, (3, 2), TILE, _arguments(48, 1), _attended, **NEAR,
        notes="a break that differs by thread, inside of what the barriers enclose",
    ),
    Case(
        "decode_attention", decode_attention, 3, 32,
        lambda rng: {
            "q": rng.standard_normal((3, DIM), dtype=np.float32), "k": rng.standard_normal((3, 70, DIM), dtype=np.float32),
            "v": rng.standard_normal((3, 70, DIM), dtype=np.float32), "lengths": np.array([70, 5, 33], np.int32),
            "out": Empty((3, DIM), np.float32), "scale": 0.25,
        },
        _decoded, **NEAR, notes="lanes without keys take part in the merge with weight 0",
    ),
)  # fmt: skip
