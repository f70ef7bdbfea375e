"""Asynchronous copies as assembly (cp.async), latches and semaphores: what is in flight, and what orders threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.app.check import check
from windtunnel.app.check_arguments import LaunchRequest
from windtunnel.core.errors import InputError

MACROS = r"""
#define CP_ASYNC_CA(dst, src, Bytes) asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(dst), "l"(src), "n"(Bytes))
#define CP_ASYNC_CG(dst, src, Bytes) asm volatile("cp.async.cg.shared.global [%0], [%1], %2;\n" ::"r"(dst), "l"(src), "n"(Bytes))
#define CP_ASYNC_COMMIT_GROUP() asm volatile("cp.async.commit_group;\n" ::)
#define CP_ASYNC_WAIT_GROUP(N) asm volatile("cp.async.wait_group %0;\n" ::"n"(N))
__device__ __forceinline__ void cp_async_zfill(void *to, const void *from, bool pred) {
  unsigned smem = static_cast<unsigned>(__cvta_generic_to_shared(to));
  int n = pred ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;\n" ::"r"(smem), "l"(from), "n"(16), "r"(n));
}
template <int N> __device__ void wait() { if constexpr (N == 0) asm volatile("cp.async.wait_all;\n" ::); else asm volatile("cp.async.wait_group %0;\n" ::"n"(N)); }
"""


def simple(wait: str, barrier: str = "__syncthreads();") -> str:
    """Return a kernel that turns the numbers of a block round in shared memory."""
    return f"""__global__ void k(const float4 *in, float4 *out) {{
        __shared__ float4 s[64];
        __shared__ float other[64];
        other[threadIdx.x] = 1;
        unsigned at = (unsigned)__cvta_generic_to_shared(s) + threadIdx.x * 16;
        CP_ASYNC_CG(at, in + threadIdx.x, 16);
        CP_ASYNC_COMMIT_GROUP();
        {wait} {barrier}
        out[threadIdx.x] = s[63 - threadIdx.x];
    }}"""


def pipelined(left: int, barrier: str = "__syncthreads();") -> str:
    """Return a kernel with two stages of which one is computed with while the other is copied."""
    return f"""__global__ void k(const float *in, float *out) {{
        __shared__ float s[2][64];
        int t = threadIdx.x;
        float sum = 0;
        unsigned b = __cvta_generic_to_shared(&s[0][0]);
        CP_ASYNC_CA(b + t * 4, in + t, 4);
        CP_ASYNC_COMMIT_GROUP();
        for (int i = 0; i < 4; i++) {{
            if (i < 3) CP_ASYNC_CA(b + ((i + 1) % 2 * 64 + t) * 4, in + t, 4);
            CP_ASYNC_COMMIT_GROUP();
            CP_ASYNC_WAIT_GROUP({left});
            __syncthreads();
            sum += s[i % 2][63 - t];
            {barrier}
        }}
        out[t] = sum;
    }}"""


def filled(place: str) -> str:
    """Return a kernel whose last threads copy zeros."""
    return f"""__global__ void k(const float4 *in, float4 *out, int n) {{
        __shared__ float4 s[64];
        int t = threadIdx.x;
        cp_async_zfill(&s[{place}], in + t, t < n - 10);
        CP_ASYNC_COMMIT_GROUP();
        wait<0>();
        __syncthreads();
        float4 v = s[63 - t];
        if (t < 10) assert(v.x == 0);
        out[t] = v;
    }}"""


MISALIGNED = """__global__ void k(const float *in, float *out) {
    __shared__ __align__(16) float s[80];
    CP_ASYNC_CG((unsigned)__cvta_generic_to_shared(s + threadIdx.x + 1), in, 16);
    wait<0>();
    out[threadIdx.x] = s[threadIdx.x + 1];
}"""
COPIES = {
    "a wait and a barrier": (simple("CP_ASYNC_WAIT_GROUP(0);"), "clean"),
    "no wait": (simple(""), "DataRace"),
    "a wait that leaves the group in flight": (simple("CP_ASYNC_WAIT_GROUP(1);"), "DataRace"),
    "no barrier": (simple("CP_ASYNC_WAIT_GROUP(0);", ""), "DataRace"),
    "a wait for all": (simple("wait<0>();"), "clean"),
    "two stages": (pipelined(1), "clean"),
    "two stages, and a wait that leaves both": (pipelined(2), "DataRace"),
    "two stages without the second barrier": (pipelined(1, ""), "DataRace"),
    "zeros": (filled("t"), "clean"),
    "beyond the end": (filled("t + 1"), "OutOfBounds"),
    "misaligned": (MISALIGNED, "MisalignedAccess"),
}


def verdict(tmp_path: Path, source: str, block: int = 64) -> str:
    """Return the class of the finding in one block; ``clean`` for none."""
    file = tmp_path / "kernel.cu"
    file.write_text(source)
    found = check([LaunchRequest(file, None, (1, 1, 1), (block, 1, 1))]).findings
    return found[0].finding if found else "clean"


def test_copies_by_assembly_are_in_flight_until_their_thread_waits(tmp_path: Path) -> None:
    found = {what: verdict(tmp_path, MACROS + source) for what, (source, _) in COPIES.items()}
    assert found == {what: expected for what, (_, expected) in COPIES.items()}


MATRICES = {
    "ldmatrix": (
        'asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"'
        ' : "=r"(a[0]), "=r"(a[1]) : "r"((unsigned)__cvta_generic_to_shared(s)));'
    ),
    "mma.sync": (
        'asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"'
        ' : "+d"(d[0]), "+d"(d[1]) : "d"(d[2]), "d"(d[3]));'
    ),
}


def test_matrices_by_assembly_are_refused_by_name(tmp_path: Path) -> None:
    for name, statement in MATRICES.items():
        body = f"{{ __shared__ int s[64]; unsigned a[2]; double d[4]; {statement} out[0] = a[0] + s[0]; }}"
        with pytest.raises(InputError, match=rf"the assembly '{name}.*expected matrices of a warp by nvcuda::wmma"):
            verdict(tmp_path, f"__global__ void k(int *out) {body}")


LATCH = """
#include <cuda/latch>
__global__ void k(int *out) {{
    __shared__ cuda::latch<cuda::thread_scope_block> latch;
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t == 0) init(&latch, {count});
    __syncthreads();
    s[t] = t;
    {then}
    out[t] = s[63 - t];
}}"""
SEMAPHORE = """
#include <cuda/std/semaphore>
#include <cuda/semaphore>
__global__ void k(int *out) {{
    __shared__ cuda::binary_semaphore<cuda::thread_scope_block> one;
    __shared__ int sum;
    int t = threadIdx.x;
    if (t == 0) {{ init(&one, 1); sum = 0; }}
    __syncthreads();
    {before}
    sum += t;
    {after}
    __syncthreads();
    if (t == 0) {{ assert(sum == 28); out[0] = sum; }}
}}"""


def test_latches_and_semaphores_order_what_they_say(tmp_path: Path) -> None:
    cases = (
        (LATCH.format(count=64, then="latch.arrive_and_wait();"), 64, "clean"),
        (LATCH.format(count=64, then="latch.count_down();"), 64, "DataRace"),
        (LATCH.format(count=65, then="latch.arrive_and_wait();"), 64, "Deadlock"),
        (SEMAPHORE.format(before="one.acquire();", after="one.release();"), 8, "clean"),
        (SEMAPHORE.format(before="", after=""), 8, "DataRace"),
        (SEMAPHORE.format(before="one.acquire();", after=""), 8, "Deadlock"),
    )
    for source, block, expected in cases:
        assert verdict(tmp_path, source, block) == expected, source


def test_dynamic_shared_memory_goes_up_to_what_the_device_allows_a_block(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text(
        "__global__ void k(float *o) { extern __shared__ float s[]; int t = threadIdx.x; s[t + 15000] = t; "
        "__syncthreads(); o[t] = s[15063 - t]; }"
    )
    for device, most in (("h100-sxm-80gb", 227 * 1024), ("t4", 64 * 1024)):
        request = LaunchRequest(file, None, (1, 1, 1), (64, 1, 1), shared_bytes=most)
        found = check([request], device)
        assert not found.findings
        assert any("cudaFuncAttributeMaxDynamicSharedMemorySize" in note for note in found.notes)
        with pytest.raises(InputError, match=rf"{most + 1:,} bytes of shared memory, of at most {most:,}"):
            check([replace(request, shared_bytes=most + 1)], device)
