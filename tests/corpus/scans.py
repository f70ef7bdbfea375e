"""Prefix sums: Hillis and Steele's, Blelloch's, of any length by the blocks' sums; compaction and run lengths on them."""

import numpy as np
from tests.corpus.registry import Case, Empty, Program, Step

import windtunnel
from windtunnel import blockDim, blockIdx, grid, i32, shared, syncthreads, threadIdx

SCAN = 64


@windtunnel.kernel
def hillis_steele(x: i32[:], out: i32[:], n: i32):
    # Two halves by turns: one is read while the other is written.
    temp = shared.array((2, SCAN), i32)
    t = threadIdx.x
    source = 0
    temp[0, t] = x[t] if t < n else 0
    syncthreads()
    offset = 1
    while offset < SCAN:
        if t >= offset:
            temp[1 - source, t] = temp[source, t] + temp[source, t - offset]
        else:
            temp[1 - source, t] = temp[source, t]
        source = 1 - source
        syncthreads()
        offset *= 2
    if t < n:
        out[t] = temp[source, t]


@windtunnel.kernel
def hillis_steele_in_place(x: i32[:], out: i32[:]):
    temp = shared.array(SCAN, i32)
    t = threadIdx.x
    i = grid(1)
    temp[t] = x[i]
    syncthreads()
    offset = 1
    while offset < blockDim.x:
        value = 0
        if t >= offset:
            value = temp[t - offset]
        syncthreads()
        temp[t] += value
        syncthreads()
        offset <<= 1
    out[i] = temp[t]


@windtunnel.kernel
def blelloch(x: i32[:], out: i32[:], sums: i32[:], n: i32):
    # Two elements a thread, exclusive; the block's sum goes to sums.
    temp = shared.array(2 * SCAN, i32)
    t = threadIdx.x
    base = blockIdx.x * 2 * SCAN
    temp[t] = x[base + t] if base + t < n else 0
    temp[t + SCAN] = x[base + t + SCAN] if base + t + SCAN < n else 0
    offset = 1
    d = SCAN
    while d > 0:
        syncthreads()
        if t < d:
            ai = offset * (2 * t + 1) - 1
            bi = offset * (2 * t + 2) - 1
            temp[bi] += temp[ai]
        offset *= 2
        d >>= 1
    syncthreads()
    if t == 0:
        sums[blockIdx.x] = temp[2 * SCAN - 1]
        temp[2 * SCAN - 1] = 0
    d = 1
    while d < 2 * SCAN:
        offset >>= 1
        syncthreads()
        if t < d:
            ai = offset * (2 * t + 1) - 1
            bi = offset * (2 * t + 2) - 1
            held = temp[ai]
            temp[ai] = temp[bi]
            temp[bi] += held
        d *= 2
    syncthreads()
    if base + t < n:
        out[base + t] = temp[t]
    if base + t + SCAN < n:
        out[base + t + SCAN] = temp[t + SCAN]


@windtunnel.kernel
def add_block_sums(out: i32[:], sums: i32[:], n: i32):
    base = blockIdx.x * 2 * SCAN
    for i in range(base + threadIdx.x, min(base + 2 * SCAN, n), blockDim.x):
        out[i] += sums[blockIdx.x]


@windtunnel.kernel
def positive_flags(x: i32[:], flags: i32[:], n: i32):
    i = grid(1)
    if i < n:
        flags[i] = 1 if x[i] > 0 else 0


@windtunnel.kernel
def compact(x: i32[:], flags: i32[:], places: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n and flags[i] == 1:
        out[places[i]] = x[i]


@windtunnel.kernel
def run_starts(x: i32[:], flags: i32[:], n: i32):
    i = grid(1)
    if i < n:
        if i == 0 or x[i] != x[i - 1]:
            flags[i] = 1
        else:
            flags[i] = 0


@windtunnel.kernel
def run_lengths(x: i32[:], flags: i32[:], places: i32[:], values: i32[:], lengths: i32[:], runs: i32[:], n: i32):
    i = grid(1)
    if i >= n:
        return
    if i == n - 1:
        runs[0] = places[i] + flags[i]
    if flags[i] == 0:
        return
    end = i + 1
    while end < n and flags[end] == 0:
        end += 1
    values[places[i]] = x[i]
    lengths[places[i]] = end - i


def _exclusive(x: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(x)[:-1]]).astype(np.int32)


def _blelloch(x, out, sums, n):
    pieces = [x[at : at + 2 * SCAN] for at in range(0, n, 2 * SCAN)]
    return {
        "out": np.concatenate([_exclusive(p) for p in pieces]),
        "sums": np.array([p.sum() for p in pieces], np.int32),
    }


def _scan(x, out, sums, offsets, total, n):
    blocks = -(-n // (2 * SCAN))
    yield Step(blelloch, blocks, SCAN, (x, out, sums, n))
    yield Step(blelloch, 1, SCAN, (sums, offsets, total, blocks))
    yield Step(add_block_sums, blocks, SCAN, (out, offsets, n))


def _scan_arrays(n: int):
    blocks = -(-n // (2 * SCAN))
    return {
        "sums": Empty((blocks,), np.int32), "offsets": Empty((blocks,), np.int32), "total": Empty((1,), np.int32), "n": n,
    }  # fmt: skip


def _compaction(x, flags, places, out, sums, offsets, total, n):
    yield Step(positive_flags, -(-n // 128), 128, (x, flags, n))
    yield from _scan(flags, places, sums, offsets, total, n)
    yield Step(compact, -(-n // 128), 128, (x, flags, places, out, n))


def _run_length(x, flags, places, values, lengths, runs, sums, offsets, total, n):
    yield Step(run_starts, -(-n // 96), 96, (x, flags, n))
    yield from _scan(flags, places, sums, offsets, total, n)
    yield Step(run_lengths, -(-n // 96), 96, (x, flags, places, values, lengths, runs, n))


def _compacted(x, out, total, **_):
    kept = x[x > 0]
    out[: kept.size] = kept
    return {"out": out, "total": np.array([kept.size], np.int32)}


def _encoded(x, values, lengths, **_):
    starts = np.flatnonzero(np.diff(x, prepend=x[0] - 1))
    values[: starts.size] = x[starts]
    lengths[: starts.size] = np.diff(starts, append=x.size)
    return {"values": values, "lengths": lengths, "runs": np.array([starts.size], np.int32)}


def _numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-99, 99, n, dtype=np.int32)


CASES = (
    Case(
        "scan_hillis_steele", hillis_steele, 1, SCAN, lambda rng: {"x": _numbers(rng, 50), "out": Empty((50,), np.int32), "n": 50},
        lambda x, out, n: {"out": np.cumsum(x, dtype=np.int32)}, notes="two buffers in one shared array of two dimensions",
    ),
    Case(
        "scan_hillis_steele_in_place", hillis_steele_in_place, 3, SCAN,
        lambda rng: {"x": _numbers(rng, 192), "out": Empty((192,), np.int32)},
        lambda x, out: {"out": np.cumsum(x.reshape(3, SCAN), axis=1, dtype=np.int32).reshape(-1)},
        notes="two barriers a round: one before what was read is written over",
    ),
    Case(
        "scan_blelloch", blelloch, 3, SCAN,
        lambda rng: {"x": _numbers(rng, 300), "out": Empty((300,), np.int32), "sums": Empty((3,), np.int32), "n": 300}, _blelloch,
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "scan_of_any_length", lambda rng: {"x": _numbers(rng, 3001), "out": Empty((3001,), np.int32), **_scan_arrays(3001)},
        _scan, lambda x, total, **_: {"out": _exclusive(x), "total": np.array([x.sum()], np.int32)}, scratch=("sums", "offsets"),
    ),
    Program(
        "stream_compaction",
        lambda rng: {
            "x": _numbers(rng, 1500), "flags": Empty((1500,), np.int32), "places": Empty((1500,), np.int32), "out": np.zeros(1500, np.int32),
            **_scan_arrays(1500),
        },
        _compaction, _compacted, scratch=("flags", "places", "sums", "offsets"),
    ),
    Program(
        "run_length_encoding",
        lambda rng: {
            "x": np.repeat(rng.integers(0, 4, 250, dtype=np.int32), rng.integers(1, 8, 250))[:700],
            "flags": Empty((700,), np.int32), "places": Empty((700,), np.int32), "values": np.zeros(700, np.int32),
            "lengths": np.zeros(700, np.int32), "runs": Empty((1,), np.int32), **_scan_arrays(700),
        },
        _run_length, _encoded, scratch=("flags", "places", "sums", "offsets", "total"),
    ),
)  # fmt: skip
