"""Sorting networks in shared and global memory, a pass of radix sort, merge path."""

import numpy as np
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, grid, i32, shared, syncthreads, threadIdx, u32

SIZE = 128
RADIX = 16


@windtunnel.kernel
def bitonic_shared(keys: i32[:]):
    s = shared.array(SIZE, i32)
    t = threadIdx.x
    base = blockIdx.x * SIZE
    s[t] = keys[base + t]
    syncthreads()
    k = 2
    while k <= SIZE:
        j = k // 2
        while j > 0:
            other = t ^ j
            if other > t:
                ascending = (t & k) == 0
                if (s[t] > s[other]) == ascending:
                    s[t], s[other] = s[other], s[t]
            syncthreads()
            j //= 2
        k *= 2
    keys[base + t] = s[t]


@windtunnel.kernel
def bitonic_pass(keys: u32[:], values: i32[:], j: i32, k: i32):
    i = grid(1)
    other = i ^ j
    if other > i:
        a = keys[i]
        b = keys[other]
        if ((i & k) == 0 and a > b) or ((i & k) != 0 and a < b):
            keys[i] = b
            keys[other] = a
            held = values[i]
            values[i] = values[other]
            values[other] = held


@windtunnel.kernel
def odd_even_sort(x: i32[:], n: i32):
    s = shared.array(256, i32)
    t = threadIdx.x
    for i in range(t, n, blockDim.x):
        s[i] = x[i]
    syncthreads()
    for phase in range(n):
        left = 2 * t + (phase & 1)
        if left + 1 < n and s[left] > s[left + 1]:
            s[left], s[left + 1] = s[left + 1], s[left]
        syncthreads()
    for i in range(t, n, blockDim.x):
        x[i] = s[i]


@windtunnel.kernel
def odd_even_until_sorted(x: i32[:], rounds: i32[:], n: i32):
    # The loop ends for all threads of the block at once: what decides is in shared memory, behind a barrier.
    moved = shared.array(1, i32)
    t = threadIdx.x
    done = 0
    while True:
        if t == 0:
            moved[0] = 0
        syncthreads()
        for phase in range(2):
            left = 2 * t + phase
            if left + 1 < n and x[left] > x[left + 1]:
                held = x[left]
                x[left] = x[left + 1]
                x[left + 1] = held
                atomic.exch(moved, 0, 1)
            syncthreads()
        going = moved[0]
        syncthreads()
        done += 1
        if going == 0:
            break
    if t == 0:
        rounds[0] = done


@windtunnel.kernel
def rank_sort(x: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n:
        rank = 0
        for j in range(n):
            if x[j] < x[i] or (x[j] == x[i] and j < i):
                rank += 1
        out[rank] = x[i]


@windtunnel.kernel
def radix_counts(keys: u32[:], counts: i32[:, :], shift: u32, n: i32):
    # counts[digit, block], so that one scan in row order gives where each block's digits begin.
    mine = shared.array(RADIX, i32)
    t = threadIdx.x
    if t < RADIX:
        mine[t] = 0
    syncthreads()
    i = grid(1)
    if i < n:
        atomic.add(mine, i32((keys[i] >> shift) & 15), 1)
    syncthreads()
    if t < RADIX:
        counts[t, blockIdx.x] = mine[t]


@windtunnel.kernel
def scan_by_one(counts: i32[:, :], digits: i32, columns: i32):
    if grid(1) == 0:
        total = 0
        for d in range(digits):
            for b in range(columns):
                here = counts[d, b]
                counts[d, b] = total
                total += here


@windtunnel.kernel
def radix_scatter(keys: u32[:], out: u32[:], starts: i32[:, :], shift: u32, n: i32):
    digits = shared.array(64, i32)
    t = threadIdx.x
    i = grid(1)
    digit = -1
    if i < n:
        digit = i32((keys[i] >> shift) & 15)
    digits[t] = digit
    syncthreads()
    if i < n:
        before = 0
        for other in range(t):
            if digits[other] == digit:
                before += 1
        out[starts[digit, blockIdx.x] + before] = keys[i]


@windtunnel.kernel
def merge_path(a: i32[:], b: i32[:], out: i32[:], na: i32, nb: i32, each: i32):
    # Each thread finds by bisection where its diagonal crosses the path, and merges a few from there.
    diagonal = min(grid(1) * each, na + nb)
    end = min(diagonal + each, na + nb)
    low = max(0, diagonal - nb)
    high = min(diagonal, na)
    while low < high:
        middle = (low + high) // 2
        if a[middle] <= b[diagonal - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    i = low
    j = diagonal - low
    for k in range(diagonal, end):
        if j >= nb or (i < na and a[i] <= b[j]):
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1


@windtunnel.kernel
def lower_bound(sorted_: i32[:], wanted: i32[:], places: i32[:], n: i32, queries: i32):
    q = grid(1)
    if q >= queries:
        return
    low = 0
    high = n
    while low < high:
        middle = low + (high - low) // 2
        if sorted_[middle] < wanted[q]:
            low = middle + 1
        else:
            high = middle
    places[q] = low


def _ints(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, n, dtype=np.int32)


def _one_pass(keys, values, j, k):
    for i in range(keys.size):
        o = i ^ j
        if o > i and (keys[i] > keys[o] if i & k == 0 else keys[i] < keys[o]):
            keys[[i, o]], values[[i, o]] = keys[[o, i]], values[[o, i]]
    return {"keys": keys, "values": values}


def _bitonic(keys, values):
    k = 2
    while k <= 512:
        j = k // 2
        while j > 0:
            yield Step(bitonic_pass, 4, 128, (keys, values, j, k))
            j //= 2
        k *= 2


def _counts(keys, shift, n):
    blocks_ = [keys[at : at + 64] for at in range(0, n, 64)]
    return np.stack([np.bincount((b >> np.uint32(shift)) & 15, minlength=RADIX) for b in blocks_], axis=1).astype(
        np.int32
    )


def _radix(keys, other, counts, n):
    for turn in range(8):
        grid_ = blocks(n, 64)
        yield Step(radix_counts, grid_, 64, (keys, counts, 4 * turn, n))
        yield Step(scan_by_one, 1, 1, (counts, RADIX, grid_))
        yield Step(radix_scatter, grid_, 64, (keys, other, counts, 4 * turn, n))
        keys, other = other, keys


def _nearly_sorted(rng: np.random.Generator):
    x = np.arange(90, dtype=np.int32)
    at = rng.integers(0, 87, 12)
    for i in at:
        x[[i, i + 2]] = x[[i + 2, i]]
    return {"x": x, "rounds": Empty((1,), np.int32), "n": 90}


def _bubbled(x, rounds, n):
    done = 0
    while True:
        before = x.copy()
        for phase in range(2):
            for left in range(phase, n - 1, 2):
                x[left : left + 2] = np.sort(x[left : left + 2])
        done += 1
        if (x == before).all():
            return {"x": x, "rounds": np.array([done], np.int32)}


CASES = (
    Case(
        "bitonic_sort_in_shared_memory", bitonic_shared, 3, SIZE, lambda rng: {"keys": _ints(rng, 3 * SIZE)},
        lambda keys: {"keys": np.sort(keys.reshape(3, SIZE), axis=1).reshape(-1)}, notes="each pair is one thread's",
    ),
    Case(
        "bitonic_pass", bitonic_pass, 2, 64,
        lambda rng: {"keys": rng.integers(0, 2**32, 128, dtype=np.uint32), "values": np.arange(128, dtype=np.int32), "j": 4, "k": 16},
        _one_pass, notes="keys above 2**31 compare as unsigned",
    ),
    Case(
        "odd_even_sort", odd_even_sort, 1, 128, lambda rng: {"x": _ints(rng, 200), "n": 200}, lambda x, n: {"x": np.sort(x)},
    ),
    Case(
        "odd_even_until_sorted", odd_even_until_sorted, 1, 64, _nearly_sorted, _bubbled,
        notes="global memory within one block, ordered by barriers; while True with a uniform break",
    ),
    Case(
        "rank_sort", rank_sort, 3, 64, lambda rng: {"x": rng.integers(0, 50, 150, dtype=np.int32), "out": Empty((150,), np.int32), "n": 150},
        lambda x, out, n: {"out": np.sort(x)},
    ),
    Case(
        "radix_counts", radix_counts, 5, 64,
        lambda rng: {"keys": rng.integers(0, 2**32, 300, dtype=np.uint32), "counts": Empty((RADIX, 5), np.int32), "shift": 28, "n": 300},
        lambda keys, counts, shift, n: {"counts": _counts(keys, shift, n)},
    ),
    Case(
        "merge_path", merge_path, 3, 32,
        lambda rng: {
            "a": np.sort(rng.integers(0, 99, 130, dtype=np.int32)), "b": np.sort(rng.integers(0, 99, 77, dtype=np.int32)),
            "out": Empty((207,), np.int32), "na": 130, "nb": 77, "each": 5,
        },
        lambda a, b, out, **_: {"out": np.sort(np.concatenate([a, b]))}, notes="or short-circuits: a[i] past the end is never read",
    ),
    Case(
        "lower_bound", lower_bound, 2, 64,
        lambda rng: {
            "sorted_": np.sort(rng.integers(0, 500, 200, dtype=np.int32)), "wanted": rng.integers(-10, 510, 100, dtype=np.int32),
            "places": Empty((100,), np.int32), "n": 200, "queries": 100,
        },
        lambda sorted_, wanted, **_: {"places": np.searchsorted(sorted_, wanted).astype(np.int32)}, notes="divergent while",
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "bitonic_sort_pairs",
        lambda rng: {"keys": rng.permutation(2**20)[:512].astype(np.uint32) * np.uint32(4095), "values": np.arange(512, dtype=np.int32)},
        _bitonic, lambda keys, values: {"keys": np.sort(keys), "values": np.argsort(keys).astype(np.int32)},
        notes="keys are distinct: the values have one order",
    ),
    Program(
        "radix_sort",
        lambda rng: {
            "keys": rng.integers(0, 2**32, 500, dtype=np.uint32), "other": Empty((500,), np.uint32), "counts": Empty((RADIX, 8), np.int32),
            "n": 500,
        },
        _radix, lambda keys, other, counts, n: {"keys": np.sort(keys)}, scratch=("other", "counts"),
    ),
)  # fmt: skip
