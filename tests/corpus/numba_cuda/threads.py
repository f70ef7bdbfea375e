"""Numba CUDA programs: threads that work together. Each ``program_`` returns the arrays that it computed."""

import numpy as np
from numba import cuda, float32, float64, int32, int64, uint32, uint64

N = 128


@cuda.jit
def shared_kernel(a, out):
    held = cuda.shared.array(N, dtype=float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    held[t] = a[i]
    cuda.syncthreads()
    out[i] = held[N - 1 - t]


def program_shared_array():
    a, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    shared_kernel[2, N](a, out)
    return {"out": out}


@cuda.jit
def tile_kernel(a, out):
    tile = cuda.shared.array((16, 17), dtype=float64)
    x, y = cuda.grid(2)
    if x < a.shape[1] and y < a.shape[0]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = a[y, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.x
    y = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.y
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


def program_shared_tile_of_two_dimensions():
    a, out = np.arange(32 * 48.0).reshape(32, 48), np.zeros((48, 32))
    tile_kernel[(3, 2), (16, 16)](a, out)
    return {"out": out}


@cuda.jit
def dynamic_kernel(a, out):
    words = cuda.shared.array(0, dtype=int32)
    t = cuda.threadIdx.x
    words[t] = a[t]
    cuda.syncthreads()
    out[t] = words[cuda.blockDim.x - 1 - t] + words.size


def program_dynamic_shared_memory():
    a, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    dynamic_kernel[1, 64, 0, 64 * 4](a, out)
    return {"out": out}


@cuda.jit
def two_dynamic_kernel(out):
    whole = cuda.shared.array(0, dtype=int32)
    floats = cuda.shared.array(0, dtype=float32)[4:]  # both start at the same address
    t = cuda.threadIdx.x
    if t < 4:
        whole[t] = t * 10
        floats[t] = t + 0.5
    cuda.syncthreads()
    if t < 4:
        out[t] = whole[t] + floats[t]


def program_two_views_of_dynamic_shared_memory():
    out = np.zeros(4)
    two_dynamic_kernel[1, 32, 0, 64](out)
    return {"out": out}


@cuda.jit
def local_kernel(a, out):
    i = cuda.grid(1)
    held = cuda.local.array(4, dtype=float64)
    grid = cuda.local.array((2, 2), dtype=int32)
    for k in range(4):
        held[k] = a[i] * k
        grid[k // 2, k % 2] = k
    total = 0.0
    for k in range(4):
        total += held[3 - k] + grid[k % 2, k // 2]
    out[i] = total


def program_local_array():
    a, out = np.linspace(0, 1, 8), np.zeros(8)
    local_kernel[1, 8](a, out)
    return {"out": out}


RECORD = np.dtype([("a", np.int32), ("b", np.float32)], align=True)


@cuda.jit
def shared_records_kernel(out):
    held = cuda.shared.array(32, dtype=RECORD)
    t = cuda.threadIdx.x
    held[t].a = t
    held[t].b = t * 0.5
    cuda.syncthreads()
    out[t] = held[31 - t].a + held[31 - t].b


def program_shared_array_of_records():
    out = np.zeros(32)
    shared_records_kernel[1, 32](out)
    return {"out": out}


@cuda.jit
def atomics_kernel(i32, u32, i64, f32, f64, olds):
    i = cuda.grid(1)
    cuda.atomic.add(i32, 0, i)
    cuda.atomic.sub(i32, 1, i)
    cuda.atomic.max(i32, 2, i)
    cuda.atomic.min(i32, 3, -i)
    cuda.atomic.and_(u32, 0, ~(uint32(1) << uint32(i % 32)))
    cuda.atomic.or_(u32, 1, uint32(1) << uint32(i % 32))
    cuda.atomic.xor(u32, 2, uint32(i))
    cuda.atomic.inc(u32, 3, uint32(9))
    cuda.atomic.dec(u32, 4, uint32(9))
    cuda.atomic.add(i64, 0, i)
    cuda.atomic.max(i64, 1, i)
    cuda.atomic.min(i64, 2, -i)
    cuda.atomic.add(f32, 0, 0.5)
    cuda.atomic.max(f32, 1, float32(i))
    cuda.atomic.min(f32, 2, float32(-i))
    cuda.atomic.add(f64, 0, 0.25)
    cuda.atomic.max(f64, 1, float64(i))
    cuda.atomic.sub(f64, 2, 0.5)
    if i == 0:
        olds[0] = cuda.atomic.exch(i64, 3, 99)
        olds[1] = cuda.atomic.cas(i64, 4, 0, 5)
        olds[2] = cuda.atomic.cas(i64, 4, 0, 6)
        olds[3] = cuda.atomic.add(i64, 5, 3)
        olds[4] = cuda.atomic.compare_and_swap(i64[6:7], 0, 8)


def program_atomics():
    i32, u32 = np.zeros(4, np.int32), np.array([2**32 - 1, 0, 0, 0, 0], np.uint32)
    i64, f32, f64, olds = np.zeros(7, np.int64), np.zeros(3, np.float32), np.zeros(3), np.zeros(5, np.int64)
    atomics_kernel[4, 64](i32, u32, i64, f32, f64, olds)
    return {"i32": i32, "u32": u32, "i64": i64, "f32": f32, "f64": f64, "olds": olds}


@cuda.jit
def atomic_nan_kernel(a, largest, smallest, plain):
    i = cuda.grid(1)
    if i < a.size:
        cuda.atomic.nanmax(largest, 0, a[i])
        cuda.atomic.nanmin(smallest, 0, a[i])
        cuda.atomic.max(plain, 0, a[i])


def program_atomics_of_nan():
    a = np.array([1.0, np.nan, 5.0, -3.0])
    largest, smallest, plain = np.array([-10.0]), np.array([10.0]), np.array([-10.0])
    atomic_nan_kernel[1, 32](a, largest, smallest, plain)
    return {"largest": largest, "smallest": smallest, "plain": plain}


@cuda.jit
def atomic_index_kernel(a, counts, table):
    i = cuda.grid(1)
    if i < a.size:
        cuda.atomic.add(counts, a[i], 1)
        cuda.atomic.add(table, (a[i] % 2, i % 3), 1)


def program_atomics_at_computed_indices():
    a = (np.arange(200) * 7 % 10).astype(np.int64)
    counts, table = np.zeros(10, np.int32), np.zeros((2, 3), np.int64)
    atomic_index_kernel[2, 128](a, counts, table)
    return {"counts": counts, "table": table}


@cuda.jit
def histogram_kernel(a, out):
    held = cuda.shared.array(16, dtype=int32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < 16:
        held[t] = 0
    cuda.syncthreads()
    if i < a.size:
        cuda.atomic.add(held, a[i], 1)
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(out, t, held[t])


def program_histogram_in_shared_memory():
    a, out = (np.arange(1000) ** 2 % 16).astype(np.int32), np.zeros(16, np.int32)
    histogram_kernel[8, 128](a, out)
    return {"out": out}


@cuda.jit
def counts_kernel(a, out):
    t = cuda.threadIdx.x
    out[0, t] = cuda.syncthreads_count(int32(a[t] > 3))
    out[1, t] = cuda.syncthreads_and(int32(a[t] >= 0))
    out[2, t] = cuda.syncthreads_or(int32(a[t] == 5))
    out[3, t] = cuda.syncthreads_and(a[t])


def program_barriers_that_count():
    a, out = (np.arange(64) % 9).astype(np.int32), np.zeros((4, 64), np.int32)
    counts_kernel[1, 64](a, out)
    return {"out": out}


@cuda.jit
def shuffle_kernel(a, out, wide, single):
    t = cuda.grid(1)
    mask = 0xFFFFFFFF
    out[0, t] = cuda.shfl_sync(mask, a[t], 3)
    out[1, t] = cuda.shfl_up_sync(mask, a[t], 2)
    out[2, t] = cuda.shfl_down_sync(mask, a[t], 5)
    out[3, t] = cuda.shfl_xor_sync(mask, a[t], 1)
    wide[0, t] = cuda.shfl_sync(mask, int64(a[t]) << 33, 31)
    wide[1, t] = cuda.shfl_xor_sync(mask, int64(a[t]) << 33, 16)
    single[0, t] = cuda.shfl_down_sync(mask, float32(a[t]) * float32(0.5), 1)


def program_shuffles():
    a, out = np.arange(64, dtype=np.int32), np.zeros((4, 64), np.int32)
    wide, single = np.zeros((2, 64), np.int64), np.zeros((1, 64), np.float32)
    shuffle_kernel[1, 64](a, out, wide, single)
    return {"out": out, "wide": wide, "single": single}


@cuda.jit
def votes_kernel(a, out):
    t = cuda.grid(1)
    mask = 0xFFFFFFFF
    out[0, t] = cuda.all_sync(mask, a[t] < 40)
    out[1, t] = cuda.any_sync(mask, a[t] == 40)
    out[2, t] = cuda.eq_sync(mask, a[t] < 70)
    out[3, t] = cuda.ballot_sync(mask, a[t] % 3 == 0)
    out[4, t] = cuda.match_any_sync(mask, a[t] % 4)
    same, agreed = cuda.match_all_sync(mask, a[t] // 64)
    out[5, t] = same
    out[6, t] = agreed
    out[7, t] = cuda.laneid
    out[8, t] = cuda.lanemask_lt()
    out[9, t] = cuda.popc(cuda.ballot_sync(mask, a[t] % 2) & cuda.lanemask_lt())


def program_votes_and_matches():
    a, out = np.arange(64, dtype=np.int32), np.zeros((10, 64), np.int64)
    votes_kernel[1, 64](a, out)
    return {"out": out}


@cuda.jit
def active_kernel(out):
    t = cuda.threadIdx.x
    if t % 2:
        out[t] = cuda.activemask()
    else:
        out[t] = -1


def program_activemask_in_a_branch():
    out = np.zeros(32, np.int64)
    active_kernel[1, 32](out)
    return {"out": out}


@cuda.jit
def syncwarp_kernel(out):
    held = cuda.shared.array(32, dtype=int32)
    t = cuda.threadIdx.x
    held[t] = t
    cuda.syncwarp()
    out[t] = held[31 - t]
    cuda.syncwarp(0xFFFFFFFF)
    cuda.threadfence()
    cuda.threadfence_block()
    cuda.threadfence_system()
    cuda.nanosleep(uint32(10))


def program_syncwarp_fences_nanosleep():
    out = np.zeros(32, np.int32)
    syncwarp_kernel[1, 32](out)
    return {"out": out}


@cuda.jit
def warp_sum_kernel(a, out):
    i = cuda.grid(1)
    v = a[i]
    step = 16
    while step > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, step)
        step //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, v)


def program_sum_by_shuffles():
    a, out = np.arange(256, dtype=np.int64), np.zeros(1, np.int64)
    warp_sum_kernel[2, 128](a, out)
    return {"out": out}


@cuda.jit
def block_sum_kernel(a, out):
    held = cuda.shared.array(256, dtype=float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    held[t] = a[i] if i < a.size else 0
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            held[t] += held[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = held[0]


def program_sum_by_a_tree():
    a = np.random.default_rng(1).random(1000, np.float32)
    out = np.zeros(4, np.float32)
    block_sum_kernel[4, 256](a, out)
    return {"out": out}


@cuda.jit
def grid_sync_kernel(a, rounds):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    for _ in range(rounds):
        left = a[i - 1] if i > 0 else a[a.size - 1]
        g.sync()
        a[i] = a[i] + left
        g.sync()


def program_grid_sync():
    a = np.arange(128, dtype=np.int64)
    grid_sync_kernel[4, 32](a, 3)
    return {"a": a}


@cuda.jit
def stencil_kernel(a, out):
    i, j = cuda.grid(2)
    if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1:
        out[i, j] = (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) / 4


def program_stencil():
    a = np.random.default_rng(2).random((20, 30))
    out = np.zeros_like(a)
    stencil_kernel[(2, 2), (16, 16)](a, out)
    return {"out": out}


@cuda.jit
def matmul_kernel(a, b, c):
    sa = cuda.shared.array((8, 8), dtype=float32)
    sb = cuda.shared.array((8, 8), dtype=float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for tile in range((a.shape[1] + 7) // 8):
        sa[ty, tx] = 0
        sb[ty, tx] = 0
        if y < a.shape[0] and tx + tile * 8 < a.shape[1]:
            sa[ty, tx] = a[y, tx + tile * 8]
        if x < b.shape[1] and ty + tile * 8 < b.shape[0]:
            sb[ty, tx] = b[ty + tile * 8, x]
        cuda.syncthreads()
        for k in range(8):
            total += sa[ty, k] * sb[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


def program_matmul_with_tiles():
    made = np.random.default_rng(3)
    a, b = made.random((20, 30), np.float32), made.random((30, 25), np.float32)
    c = np.zeros((20, 25), np.float32)
    matmul_kernel[(4, 3), (8, 8)](a, b, c)
    return {"c": c}


@cuda.jit
def stride_kernel(a, out):
    for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        out[i] = a[i] * 2


def program_grid_stride_loop():
    a, out = np.arange(1000.0), np.zeros(1000)
    stride_kernel[3, 64](a, out)
    return {"out": out}


@cuda.jit
def lock_kernel(lock, total):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


def program_lock():
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    lock_kernel[16, 32](lock, total)
    return {"total": total}


@cuda.jit
def last_block_kernel(a, partial, done, out):
    held = cuda.shared.array(1, dtype=int32)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    cuda.atomic.add(partial, b, a[cuda.grid(1)])
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        held[0] = cuda.atomic.add(done, 0, 1)
    cuda.syncthreads()
    if held[0] == cuda.gridDim.x - 1 and t == 0:
        for k in range(cuda.gridDim.x):
            out[0] += partial[k]


def program_last_block_sums():
    a, partial = np.arange(256, dtype=np.int64), np.zeros(8, np.int64)
    done, out = np.zeros(1, np.int32), np.zeros(1, np.int64)
    last_block_kernel[8, 32](a, partial, done, out)
    return {"partial": partial, "out": out}


@cuda.jit
def early_return_kernel(a, out):
    i = cuda.grid(1)
    if i >= a.size:
        return
    out[i] = a[i] + 1


def program_early_return():
    out = np.zeros(5)
    early_return_kernel[1, 32](np.arange(5.0), out)
    return {"out": out}


@cuda.jit
def unsigned_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        state = uint64(a[i]) + uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> uint64(27))) * uint64(0x94D049BB133111EB)
        out[i] = state ^ (state >> uint64(31))


def program_hash_in_uint64():
    out = np.zeros(8, np.uint64)
    unsigned_kernel[1, 32](np.arange(8), out)
    return {"out": out}
