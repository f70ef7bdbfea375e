"""Programs of Numba CUDA for numba_study.py, beyond tests/corpus/numba_cuda. Each ``program_`` returns its arrays.

The process is not used further after a program whose name ends in ``_last``.
"""

import collections
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numba import cuda, guvectorize, int32, vectorize
from numba.cuda.random import (
    create_xoroshiro128p_states,
    init_xoroshiro128p_states,
    xoroshiro128p_jump,
    xoroshiro128p_next,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)

ROOT = Path(__file__).resolve().parents[2]

# Records, views, tuples, local arrays.

INNER = np.dtype([("u", np.int16), ("v", np.float64)], align=True)
RECORD = np.dtype(
    [("n", np.int8), ("x", np.float32), ("inner", INNER), ("row", np.int32, (3,)), ("z", np.complex64)], align=True
)
PACKED = np.dtype([("b", np.uint8), ("w", np.int64), ("f", np.float32), ("flag", np.bool_)], align=True)
UNALIGNED = np.dtype([("b", np.uint8), ("w", np.int64)])


@cuda.jit
def records_kernel(r, out):
    i = cuda.grid(1)
    r[i].n += 100
    r[i].x = r[i].x * 2 + r[i].n
    r[i].inner.u = r[i].inner.u * 3
    r[i].inner.v /= 3
    for k in range(3):
        r[i].row[k] += k * i
    r[i].z = r[i].z * 1j
    out[i] = r[i]["x"] + r[i].row[2]


def program_records_of_records():
    r, out = np.zeros(8, RECORD), np.zeros(8)
    r["n"], r["x"], r["inner"]["u"] = np.arange(8) * 9, np.linspace(0, 1, 8), np.arange(8) * 3000
    r["inner"]["v"], r["row"], r["z"] = 1, np.arange(24).reshape(8, 3), 2 + 3j
    records_kernel[1, 8](r, out)
    return {
        "n": r["n"],
        "x": r["x"],
        "u": r["inner"]["u"],
        "v": r["inner"]["v"],
        "row": r["row"],
        "z": r["z"],
        "out": out,
    }


@cuda.jit
def packed_kernel(r):
    i = cuda.grid(1)
    r[i].w += r[i].b * 3000000000
    r[i].f = r[i].w
    r[i].flag = r[i].b > 100
    r[i].b -= 200


def program_packed_records():
    r = np.zeros(8, PACKED)
    r["b"], r["w"] = np.arange(8) * 36, np.arange(8) - 4
    packed_kernel[1, 8](r)
    return {"b": r["b"], "w": r["w"], "f": r["f"], "flag": r["flag"]}


@cuda.jit
def unaligned_kernel(r):
    r[cuda.grid(1)].w += 1


def program_unaligned_records():
    r = np.zeros(8, UNALIGNED)
    unaligned_kernel[1, 8](r)
    return {"w": r["w"]}


@cuda.jit
def record_slices_kernel(r, out):
    i = cuda.grid(1)
    part = r[2:6]
    held = cuda.shared.array(4, PACKED)
    if i < part.size:
        held[i] = part[i]
        cuda.syncwarp()
        out[i] = held[i].w + part[i].b
        part[i].w = -1


def program_slices_of_records():
    r, out = np.zeros(8, PACKED), np.zeros(4, np.int64)
    r["b"], r["w"] = np.arange(8), np.arange(8) * 10
    record_slices_kernel[1, 4](r, out)
    return {"w": r["w"], "out": out}


@cuda.jit
def views_kernel(a, out, sizes):
    i = cuda.grid(1)
    if i < a.shape[0]:
        out[0, i] = a[i, ::-1][0]
        out[1, i] = a[i][1:][0]
        out[2, i] = a.T[0, i]
        out[3, i] = a[::-2][i // 2, 0]
        out[4, i] = a[1:, 1:][i // 2][1]
        out[5, i] = a[-1, -i - 1]
        out[6, i] = a[i, i - 2] + a[-1 - i][-2]
        out[7, i] = a[:, 1][i]
        total = 0.0
        for value in a[i]:
            total += value
        out[8, i] = total
    if i == 0:
        sizes[0], sizes[1], sizes[2] = a[2:100].shape[0], a[5:2].shape[0], a[::-1].shape[0]
        sizes[3], sizes[4], sizes[5] = a[-2:, ::3].size, a.T.shape[0], a[::-2, 1:3].shape[0]
        sizes[6], sizes[7], sizes[8] = a.ndim, a[0].size, a[10:].shape[0]
        sizes[9], sizes[10] = a.strides[0], a[::2, ::2].strides[0]


def program_views():
    found = {}
    a = np.arange(20.0).reshape(4, 5)
    for name, given in (("c", a), ("f", np.asfortranarray(a)), ("transposed", a.reshape(5, 4).T)):
        out, sizes = np.zeros((9, 4)), np.zeros(11, np.int64)
        views_kernel[1, 4](given, out, sizes)
        found |= {f"{name} out": out, f"{name} sizes": sizes}
    return found


@cuda.jit
def strided_kernel(a, b):
    i = cuda.grid(1)
    if i < a.size:
        b[i] = a[i] + a[-1 - i]


def program_strided_views():
    held, found = cuda.to_device(np.arange(32, dtype=np.int32)), {}
    for name, part in (("second", held[::2]), ("middle", held[5:20]), ("third", held[3:30:3])):
        out = np.zeros(part.size, np.int64)
        strided_kernel[1, 32](part, out)
        found[name] = out
    target = cuda.to_device(np.zeros(32, np.int64))
    strided_kernel[1, 32](held[::2], target[1::2])
    return found | {"target": target.copy_to_host()}


Point = collections.namedtuple("Point", ["x", "y"])


@cuda.jit
def tuples_kernel(given, nested, point, same, out):
    i = cuda.grid(1)
    out[0, i] = given[0][i] + given[1][i]
    out[1, i] = nested[0][1] * nested[1]
    out[2, i] = point.x + point.y * i
    out[3, i] = same[i % 3]
    a, (b, c) = nested[1], nested[0]
    out[4, i] = a + b - c
    joined = same + (7,)
    total = 0
    for value in joined:
        total += value
    out[5, i] = total + len(joined)
    out[6, i] = given[0].shape[0]
    out[7, i] = same == (4, 5, 6)
    out[8, i] = given[1][i] in same


def program_tuples():
    out = np.zeros((9, 4))
    given = (np.arange(4.0), np.arange(4, dtype=np.int8))
    tuples_kernel[1, 4](given, ((1, 2.5), np.float32(0.1)), Point(1.5, 2), (4, 5, 6), out)
    return {"out": out}


def local_of(kind):
    @cuda.jit
    def kernel(a, out):
        i = cuda.grid(1)
        held = cuda.local.array((2, 3), kind)
        for k in range(6):
            held[k // 3, k % 3] = a[i] * (k + 1)
        held[1, 2] += held[0, 1]
        held[0, 0] *= 3
        for k in range(6):
            out[i, k] = held[k // 3, k % 3]

    return kernel


def program_local_arrays():
    found = {}
    for kind in (
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.int32,
        np.uint32,
        np.int64,
        np.uint64,
        np.float32,
        np.float64,
    ):
        a, out = np.array([1, 50, 77, 100], np.uint8), np.zeros((4, 6))
        local_of(kind)[1, 4](a, out)
        found[np.dtype(kind).name] = out
    return found


@cuda.jit
def ranges_kernel(n8, n32, u8, out):
    t = 0
    for k in range(n8):
        t += k * 3000000000
    out[0] = t
    t = 0
    for k in range(n32, -5, -3):
        t = t * 3 + k
    out[1] = t
    t = 0
    for k in range(u8):
        t += k - 200
    out[2] = t
    t = 0
    for k in range(10):
        if k == 3:
            continue
        if k == 8:
            break
        t += k
    else:
        t = -1
    out[3] = t
    k = 0
    while True:
        k += 1
        if k * k > 50:
            break
    out[4] = k
    out[5] = len(range(3, 20, 4))
    t = 0
    for i, x in enumerate((5, 6, 7)):
        t += i * x
    for x, y in zip((1, 2), (3, 4)):
        t += x * y
    out[6] = t


def program_ranges_of_several_types():
    out = np.zeros(7, np.int64)
    ranges_kernel[1, 1](np.int8(5), np.int32(11), np.uint8(250), out)
    return {"out": out}


# Random numbers.


@cuda.jit
def random_kernel(states, f32, f64, n32, n64, raw):
    i = cuda.grid(1)
    for k in range(f32.shape[1]):
        f32[i, k] = xoroshiro128p_uniform_float32(states, i)
        f64[i, k] = xoroshiro128p_uniform_float64(states, i)
        n32[i, k] = xoroshiro128p_normal_float32(states, i)
        n64[i, k] = xoroshiro128p_normal_float64(states, i)
    xoroshiro128p_jump(states, i)
    raw[i] = xoroshiro128p_next(states, i)


def program_random_numbers():
    found = {}
    for seed in (1, 0, 2**62 + 5):
        states = create_xoroshiro128p_states(32, seed=seed)
        outs = [np.zeros((32, 40), kind) for kind in (np.float32, np.float64) * 2]
        raw = np.zeros(32, np.uint64)
        random_kernel[1, 32](states, *outs, raw)
        names = ("uniform32", "uniform64", "normal32", "normal64")
        found |= {f"{name} {seed}": out for name, out in zip(names, outs, strict=True)} | {f"raw {seed}": raw}
        kept = states.copy_to_host()
        found |= {f"state {name} {seed}": kept[name] for name in kept.dtype.names}
    again = cuda.device_array(16, states.dtype)
    init_xoroshiro128p_states(again, 99, subsequence_start=5)
    return found | {"init": again.copy_to_host()["s1"]}


# Reductions, ufuncs, cooperative groups.


def program_reduce_of_several_types():
    total, least, both = (
        cuda.reduce(lambda a, b: a + b),
        cuda.reduce(lambda a, b: min(a, b)),
        cuda.reduce(lambda a, b: a | b),
    )
    found, rng = {}, np.random.default_rng(4)
    for kind in (np.int32, np.int64, np.uint32, np.float32, np.float64):
        for size in (1, 2, 33, 256, 1000, 5000):
            a = (rng.normal(0, 100, size) if np.dtype(kind).kind == "f" else rng.integers(0, 2**31, size)).astype(kind)
            found[f"total {np.dtype(kind).name} {size}"] = np.asarray(total(a))
            found[f"least {np.dtype(kind).name} {size}"] = np.asarray(least(a, init=a[0]))
            if np.dtype(kind).kind != "f":
                found[f"both {np.dtype(kind).name} {size}"] = np.asarray(both(a))
    found["empty"] = np.asarray(total(np.zeros(0), init=3.0))
    return found


@functools.cache
def mixed_ufunc():
    kinds = ("int8", "int32", "float32", "float64", "complex64")

    @vectorize([f"{kind}({kind}, {kind})" for kind in kinds], target="cuda")
    def mixed(a, b):
        return a * b + a / (b + 1)

    return mixed


def program_vectorize_of_several_types():
    mixed = mixed_ufunc()
    a, found = np.array([1, 2, 7, 100, 5, 11]), {}
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.float32, np.float64, np.complex64, np.bool_):
        try:
            found[np.dtype(kind).name] = mixed(a.astype(kind), a[::-1].astype(kind))
        except Exception as error:
            found[np.dtype(kind).name] = np.array(type(error).__name__)
    found["broadcast"] = mixed(a.astype(np.float64)[:, None], a.astype(np.float64)[None, :])
    found["scalar"] = np.asarray(mixed(3.0, 4.0))
    return found


def program_vectorize_of_strided_arrays():
    a = np.arange(12.0)
    return {"strided": mixed_ufunc()(a[::2], a[1::2])}


@functools.cache
def moving_ufunc():
    signatures = ["void(float32[:], int32, float32[:])", "void(float64[:], int32, float64[:])"]

    @guvectorize(signatures, "(n),()->(n)", target="cuda")
    def moving(a, width, out):
        for i in range(a.shape[0]):
            total = a[i] * 0
            for k in range(max(0, i - width), i + 1):
                total += a[k]
            out[i] = total / (width + 1)

    return moving


@functools.cache
def product_ufunc():
    @guvectorize(["void(int64[:,:], int64[:], int64[:])"], "(m,n),(n)->(m)", target="cuda")
    def product(m, v, out):
        for i in range(m.shape[0]):
            out[i] = 0
            for k in range(v.size):
                out[i] += m[i, k] * v[k]

    return product


def program_guvectorize_of_single_precision():
    a = np.linspace(0, 5, 24).reshape(4, 6)
    return {"f32": moving_ufunc()(a.astype(np.float32), 2)}


def program_guvectorize_with_a_width_for_each_row():
    a = np.linspace(0, 5, 24).reshape(4, 6)
    return {"f64": moving_ufunc()(a, np.array([1, 2, 3, 0], np.int32))}


def program_guvectorize_of_integers():
    m, v = np.arange(24).reshape(2, 4, 3), np.arange(6).reshape(2, 3)
    return {"product": product_ufunc()(m, v)}


@cuda.jit
def rounds_kernel(a, b, rounds):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    n = a.size
    for _ in range(rounds):
        b[i] = a[(i + 1) % n] * 0.5 + a[i] * 0.25
        grid.sync()
        a[i] = b[(i + n - 1) % n] + 1
        grid.sync()


def program_rounds_of_a_grid():
    a, b = np.linspace(0, 9, 512), np.zeros(512)
    rounds_kernel[8, 64](a, b, 6)
    return {"a": a, "b": b}


# Captured and constant arrays, closures.

TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int8)
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)
CONSTANT_RECORDS = np.array([(1, 2.5), (3, 4.5)], dtype=np.dtype([("a", np.int16), ("b", np.float64)], align=True))
COMPLEX_TABLE = np.array([1 + 2j, 3 - 4j])
LIMIT, RATE, FLAG, NAMES = 7, 0.1, True, (1, 2.5, 3)


@cuda.jit
def captured_kernel(out):
    i = cuda.grid(1)
    held, matrix = cuda.const.array_like(TABLE), cuda.const.array_like(MATRIX)
    records = cuda.const.array_like(CONSTANT_RECORDS)
    table = cuda.const.array_like(COMPLEX_TABLE)
    out[0, i] = held[i] * 100
    out[1, i] = TABLE[i] + matrix[i % 3, i % 4] * MATRIX[2, 3]
    out[2, i] = records[i % 2].a + records[i % 2].b
    out[3, i] = (table[i % 2] * 1j).real + LIMIT * RATE
    out[4, i] = FLAG + NAMES[1] + TABLE.size + MATRIX.shape[1]
    out[5, i] = TABLE[i] << 6


def program_captured_and_constant_arrays():
    out = np.zeros((6, 8))
    captured_kernel[1, 8](out)
    return {"out": out}


@cuda.jit
def many_dimensions_kernel(a, out):
    x, y, z = cuda.grid(3)
    if x < a.shape[0] and y < a.shape[1] and z < a.shape[2]:
        out[x, y, z] = (
            a[x, y, z] * cuda.blockDim.z + cuda.threadIdx.y - cuda.gridDim.x + cuda.blockIdx.z * cuda.gridsize(3)[1]
        )


def program_three_dimensions():
    a, out = np.arange(60.0).reshape(3, 4, 5), np.zeros((3, 4, 5))
    many_dimensions_kernel[(2, 2, 3), (2, 2, 2)](a, out)
    return {"out": out}


# Atomic operations of many threads.


def program_contended_atomics():
    @cuda.jit
    def kernel(i32, u32, i64, u64, f32, f64, held):
        i = cuda.grid(1)
        shared = cuda.shared.array(4, int32)
        if cuda.threadIdx.x < 4:
            shared[cuda.threadIdx.x] = 0
        cuda.syncthreads()
        cuda.atomic.add(shared, i % 4, i)
        cuda.atomic.add(i32, i % 3, i)
        cuda.atomic.max(i32, (3,), i * 7 % 251)
        cuda.atomic.sub(u32, 0, 3)
        cuda.atomic.inc(u32, 1, 10)
        cuda.atomic.dec(u32, 2, 10)
        cuda.atomic.and_(u32, 3, ~(1 << (i % 16)))
        cuda.atomic.min(i64, 0, -i)
        cuda.atomic.max(u64, 0, i)
        cuda.atomic.add(u64, 1, -1)
        cuda.atomic.add(f32, 0, 0.5)
        cuda.atomic.nanmax(f32, 1, i * 0.5)
        cuda.atomic.min(f64, 0, -i * 0.1)
        cuda.atomic.add(f64, 1, 0.25)
        cuda.syncthreads()
        if cuda.threadIdx.x < 4:
            cuda.atomic.add(held, cuda.threadIdx.x, shared[cuda.threadIdx.x])

    i32, u32, i64, u64 = (
        np.zeros(4, np.int32),
        np.full(4, 0xFFFF, np.uint32),
        np.zeros(1, np.int64),
        np.zeros(2, np.uint64),
    )
    f32, f64, held = np.array([0, np.nan], np.float32), np.zeros(2), np.zeros(4, np.int64)
    u32[1] = u32[2] = 0
    kernel[4, 64](i32, u32, i64, u64, f32, f64, held)
    return {"i32": i32, "u32": u32, "i64": i64, "u64": u64, "f32": f32, "f64": f64, "held": held}


@cuda.jit
def divergent_kernel(out):
    i = cuda.threadIdx.x
    if i % 3 == 0:
        out[0, i] = cuda.activemask()
        out[1, i] = cuda.ballot_sync(cuda.activemask(), i > 9)
        out[2, i] = cuda.shfl_sync(0x49249249, i * 2, 3)
    elif i < 16:
        out[0, i] = cuda.popc(cuda.activemask())
    out[3, i] = cuda.shfl_up_sync(0xFFFFFFFF, i, 5)
    out[4, i] = cuda.shfl_down_sync(0xFFFFFFFF, i, 5)
    out[5, i] = cuda.shfl_sync(0xFFFFFFFF, i, 40)
    out[6, i] = cuda.shfl_xor_sync(0xFFFFFFFF, i, 33)
    out[7, i] = cuda.eq_sync(0xFFFFFFFF, i > 40)


def program_warps_in_branches():
    out = np.zeros((8, 32), np.int64)
    divergent_kernel[1, 32](out)
    return {"out": out[2:]}  # which threads are active in a branch is not defined


def program_vote_sync_intrinsic():
    @cuda.jit
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = cuda.vote_sync_intrinsic(0xFFFFFFFF, 3, i > 4)[0]

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    return {"out": out}


# What is printed.


@cuda.jit
def print_kernel(a, b, c, z):
    print(a[0], b[0], "text", c[0], True, 3, 2.5)
    print(a[0] > 1, b[0] * 3, c[0] / 7)
    print()
    print("only text")
    print(a[1], b[1], c[1], c[2], z)


def program_print():
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            print_kernel[1, 1](
                np.array([1, -5], np.int32),
                np.array([200, 0], np.uint8),
                np.array([0.1, np.nan, -np.inf]),
                np.float32(0.1),
            )
            cuda.synchronize()
            sys.stdout.flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return {"text": np.array(file.read().decode())}


# Programs of this repository, as they are.


def _printed(script, *arguments):
    done = subprocess.run([sys.executable, ROOT / script, *arguments], capture_output=True, text=True, check=False)
    return {"text": np.array(done.stdout), "code": np.array(done.returncode)}


def program_of_the_docs_heat():
    return _printed("docs/examples/numba/heat.py")


def program_of_the_docs_histogram():
    return _printed("docs/examples/numba/histogram.py")


def program_of_the_docs_mended_barrier():
    return _printed("docs/examples/numba/forgotten_barrier.py", "mended")


def program_of_a_project_orbit():
    sys.path.insert(0, str(ROOT / "tests" / "packaging" / "numba_project"))
    import orbit

    rng = np.random.default_rng(5)
    positions, masses = rng.normal(size=(199, 3)).astype(np.float32), rng.uniform(0.5, 2, 199).astype(np.float32)
    counts = np.zeros(1, np.int32)
    orbit.count_near[8, 128](positions, 1.5, counts)
    pulls = orbit.accelerations_of(positions, masses)
    return {"counts": counts, "pulls": pulls, "total": np.asarray(orbit.total(np.arange(1000.0)))}
