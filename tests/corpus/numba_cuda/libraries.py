"""Numba CUDA programs: reductions, ufuncs, random numbers, vector types. Each ``program_`` returns what it computed."""

import math

import numpy as np
from numba import cuda, guvectorize, vectorize
from numba.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)


@cuda.reduce
def total(a, b):
    return a + b


@cuda.reduce
def largest(a, b):
    return max(a, b)


@cuda.reduce
def product(a, b):
    return a * b


def program_reduce():
    a = np.arange(1, 1001, dtype=np.int64)
    held = cuda.to_device(a)
    out = cuda.device_array(1, np.int64)
    total(held, res=out)
    return {
        "total": np.array([total(a)]), "of_device": np.array([total(held)]), "largest": np.array([largest(a * 7 % 501)]),
        "init": np.array([total(a, init=5)]), "size": np.array([total(a[:10])]), "res": out.copy_to_host(),
        "floats": np.array([product(np.full(20, 1.5))]), "one": np.array([total(a[:1])]),
        "partly": np.array([total(a, size=7)]),
    }  # fmt: skip


def program_reduce_of_float32():
    a = (np.arange(5000) % 64).astype(np.float32)
    return {"total": np.array([total(a)]), "largest": np.array([largest(a)])}


@vectorize(["float32(float32, float32)", "float64(float64, float64)", "int64(int64, int64)"], target="cuda")
def combined(a, b):
    return a * b + a


@vectorize(["float64(float64)"], target="cuda")
def rooted(x):
    return math.sqrt(x) if x > 0 else -1.0


def program_vectorize():
    a, b = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    held = cuda.to_device(np.arange(6, dtype=np.float32))
    out = np.zeros(6, np.float32)
    found = combined(held, held)
    return {
        "broadcast": combined(a, b), "scalar": np.asarray(combined(a, 2.0)), "whole": combined(np.arange(5), np.arange(5)),
        "single": combined(a.astype(np.float32), a.astype(np.float32)), "on_device": found.copy_to_host(),
        "rooted": rooted(np.array([-1.0, 4.0, 2.0])), "out": out if combined(held, held, out=out) is None else out,
    }  # fmt: skip


def program_vectorize_methods():
    @vectorize(["int64(int64, int64)"], target="cuda")
    def added(a, b):
        return a + b

    return {"reduced": np.array([added.reduce(np.arange(100, dtype=np.int64))])}


@guvectorize(["void(float64[:], float64[:], float64[:])"], "(n),(n)->()", target="cuda")
def dotted(a, b, out):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    out[0] = s


@guvectorize(["void(float32[:,:], float32[:,:], float32[:,:])"], "(m,n),(n,p)->(m,p)", target="cuda")
def multiplied(a, b, c):
    m, n = a.shape
    n, p = b.shape
    for i in range(m):
        for j in range(p):
            c[i, j] = 0
            for k in range(n):
                c[i, j] += a[i, k] * b[k, j]


def program_guvectorize():
    a = np.arange(20.0).reshape(4, 5)
    m = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    n = np.arange(2 * 4 * 2, dtype=np.float32).reshape(2, 4, 2)
    return {"dotted": dotted(a, a), "multiplied": multiplied(m, n)}


@cuda.jit
def random_kernel(states, uniform32, uniform64, normal32, normal64):
    i = cuda.grid(1)
    if i < uniform32.shape[0]:
        for k in range(3):
            uniform32[i, k] = xoroshiro128p_uniform_float32(states, i)
            uniform64[i, k] = xoroshiro128p_uniform_float64(states, i)
        normal32[i] = xoroshiro128p_normal_float32(states, i)
        normal64[i] = xoroshiro128p_normal_float64(states, i)


def program_random_numbers():
    states = create_xoroshiro128p_states(8, seed=42)
    later = create_xoroshiro128p_states(4, seed=7, subsequence_start=3)
    outs = [np.zeros((8, 3), np.float32), np.zeros((8, 3)), np.zeros(8, np.float32), np.zeros(8)]
    random_kernel[1, 8](states, *outs)
    return {
        "uniform32": outs[0], "uniform64": outs[1], "normal32": outs[2], "normal64": outs[3],
        "states": states.copy_to_host(), "later": later.copy_to_host(),
    }  # fmt: skip


@cuda.jit
def vectors_kernel(out, whole):
    a = cuda.float32x4(1.0, 2.0, 3.0, 4.0)
    b = cuda.float32x2(0.5, 0.25)
    c = cuda.float32x4(b, b)
    d = cuda.int32x3(1, 2, 3)
    e = cuda.float64x2(a.x, d.y)
    f = cuda.uint8x4(255, 256, 3, 4)
    out[0] = a.x + a.y * a.z - a.w
    out[1] = c.z + c.w
    out[2] = e.x + e.y
    whole[0] = d.x + d.y + d.z
    whole[1] = f.x
    whole[2] = f.y


def program_vector_types():
    out, whole = np.zeros(3), np.zeros(3, np.int64)
    vectors_kernel[1, 1](out, whole)
    return {"out": out, "whole": whole}


@cuda.jit
def vector_aliases_kernel(out):
    a = cuda.float4(1, 2, 3, 4)
    b = cuda.int2(5, 6)
    out[0] = a.w * b.y


def program_vector_types_by_cuda_c_s_names():
    out = np.zeros(1)
    vector_aliases_kernel[1, 1](out)
    return {"out": out}


def program_libdevice():
    from numba.cuda import libdevice

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[0, i] = libdevice.rsqrt(x[i])
            out[1, i] = libdevice.fma(x[i], x[i], 1.0)
            out[2, i] = libdevice.rcbrt(x[i])
            out[3, i] = libdevice.j0(x[i])

    x = np.array([0.5, 1.0, 2.0, 10.0])
    out = np.zeros((4, 4))
    kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def cbrt_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.cbrt(x[i])


def program_cbrt():
    found = {}
    for dtype in (np.float32, np.float64):
        x = np.array([0.5, 8.0, -27.0, 2.0], dtype)
        out = np.zeros(4, dtype)
        cbrt_kernel[1, 32](x, out)
        found[np.dtype(dtype).name] = out
    return found
