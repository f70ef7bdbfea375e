"""What the headers that stand for the vendors' know, and C++ beyond C: numbers as the languages define them."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import windtunnel

PROGRAMS = {
    "references whose address is taken": (
        """
        struct V3 {
            int x, y, z;
            __device__ int &operator[](int i) { return (&x)[i]; }
            __device__ int at(int i) const { return (&x)[i]; }
        };
        template <typename D> struct Base { __device__ int run(int x) { return static_cast<D *>(this)->times(x) + 1; } };
        struct Derived : Base<Derived> { int k = 3; __device__ int times(int x) { return x * k; } };
        __device__ void increase(int &v) { int *p = &v; *p += 1; }
        __device__ void twice(int2 &pair) { increase(pair.x); increase(pair.y); }
        __global__ void k(int *out) {
            int t = threadIdx.x;
            int2 pair = make_int2(t, 10 * t);
            twice(pair);
            V3 v = {1, 2, 3};
            v[t % 3] += 50;
            Derived d;
            out[t] = pair.x + pair.y + v.at(t % 3) + d.run(t);
        }
        """,
        lambda t: t + 1 + 10 * t + 1 + 51 + t % 3 + 3 * t + 1,
    ),
    "statements in parentheses": (
        """
        #define LARGER(a, b) ({ auto _a = (a); auto _b = (b); _a > _b ? _a : _b; })
        __global__ void k(int *out) {
            int t = threadIdx.x;
            ({ out[t] = 1; });
            int s = LARGER(t, LARGER(5, 2 * t - 9));
            ({ if (t % 2) s += 100; (void)0; });
            out[t] += s;
        }
        """,
        lambda t: 1 + np.maximum(np.maximum(t, 5), 2 * t - 9) + 100 * (t % 2),
    ),
    "traits and limits": (
        """
        #include <limits>
        #include <iterator>
        #include <utility>
        enum class E : short { A };
        template <size_t... I> __device__ int sum(std::index_sequence<I...>) { return (int(I) + ... + 0); }
        static_assert(std::numeric_limits<float>::digits == 24 && std::numeric_limits<double>::max_digits10 == 17, "");
        static_assert(std::numeric_limits<int>::digits10 == 9 && std::numeric_limits<unsigned long>::digits10 == 19, "");
        static_assert(std::numeric_limits<const bool>::max() && !std::numeric_limits<E>::is_specialized, "");
        static_assert(std::is_same_v<std::underlying_type_t<E>, short> && std::is_pod_v<int2> && !std::is_array<int>::value, "");
        static_assert(std::conjunction_v<std::is_integral<int>, std::negation<std::is_pointer<int>>>, "");
        static_assert(std::is_same_v<std::add_pointer_t<int &>, int *> && std::is_same_v<decltype(std::declval<int>()), int &&>, "");
        __global__ void k(int *out) {
            constexpr int least = std::min(3, 4) + std::max(1, 2);
            int t = threadIdx.x, a[4] = {1, 2, 3, t}, s = 0;
            int old = std::exchange(a[3], sum(std::make_index_sequence<5>()));
            for (std::reverse_iterator<int *> i(std::end(a)), e(std::begin(a)); i != e; ++i) s = s * 10 + *i;
            _Bool nan = std::numeric_limits<float>::quiet_NaN() != 0.0f && std::numeric_limits<float>::denorm_min() > 0;
            out[t] = s + old + least + nan;
        }
        """,
        lambda t: 10321 + t + 5 + 1,
    ),
    "atomic operations of two types": (
        """
        __device__ float cells[2] = {-1.0f, 0.0f};
        __device__ long long wide[2] = {100, 3};
        __device__ void largest(float *at, float v) {
            if (signbit(v)) atomicMin((unsigned *)at, __float_as_uint(v)); else atomicMax((int *)at, __float_as_int(v));
        }
        __global__ void k(int *out) {
            int t = threadIdx.x;
            largest(&cells[0], 0.5f * t - 3.0f);
            atomicAdd(&cells[1], 1.0f);
            atomicMin(&wide[0], t - 7ll);
            atomicMax((unsigned long long *)&wide[1], (unsigned long long)t);
            __syncthreads();
            out[t] = (int)(2 * cells[0]) + 100 * (int)cells[1] + 10000 * (int)wide[0] + 1000000 * (int)wide[1];
        }
        """,
        lambda t: 25 + 3200 - 70000 + 31000000 + 0 * t,
    ),
    "assembly": (
        """
        __global__ void k(int *out) {
            unsigned t = threadIdx.x, a, b, c, high, place, joined;
            float power;
            asm("mov.u32 %0, %laneid;" : "=r"(a));
            asm("bfe.u32 %0, %1, 1, 3;" : "=r"(b) : "r"(t));
            asm volatile("mad.lo.u32 %0, %1, %2, %3;" : "=r"(c) : "r"(t), "r"(3), "r"(5));
            asm("mul.hi.u32 %0, %1, %2;" : "=r"(high) : "r"(t << 28), "r"(0x80u));
            asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"((float)(t % 4)));
            asm("bfind.u32 %0, %1;" : "=r"(place) : "r"(t + 1));
            asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(joined) : "r"(t), "r"(6), "r"(t >> 1));
            int before;
            asm volatile("ld.global.s32 %0, [%1];" : "=r"(before) : "l"(out + t));
            out[t] = a + b + c + high + (int)power + place + joined + before;
        }
        """,
        lambda t: (
            t
            + (t >> 1 & 7)
            + 3 * t
            + 5
            + (((t << 28) & 0xFFFFFFFF) * 0x80 >> 32)
            + 2 ** (t % 4)
            + np.floor(np.log2(t + 1)).astype(int)
            + (t & 6 | t & t >> 1 | 6 & t >> 1)
        ),
    ),  # fmt: skip
    "memory of the heap, and names of parts": (
        """
        struct Pair { int a; float b; };
        struct Made { int n; __device__ Made(int x) : n(2 * x) {} };
        __global__ void k(int *out) {
            int t = threadIdx.x;
            int *p = (int *)malloc(4 * sizeof(int)), *q = new int[t + 1];
            if (p == NULL) return;
            for (int j = 0; j < 4; j++) p[j] = t + j;
            q[t] = 100 * t;
            Made *made = new Made(t);
            float *f = new float(2.5f);
            auto [x, y] = Pair{t, *f};
            Pair pair = {1, 2.0f};
            auto &[first, second] = pair;
            first += x;
            out[t] = p[3] + q[t] + made->n + (int)(2 * y) + pair.a + (int)second;
            free(p);
            delete[] q;
            delete made;
        }
        """,
        lambda t: t + 3 + 100 * t + 2 * t + 5 + 1 + t + 2,
    ),
    "numbers of the standard library and of parts of words": (
        """
        #include <cmath>
        #include <type_traits>
        #include <cuda_bf16.h>
        template <typename T> __device__ int kind() {
            if constexpr (std::is_same_v<T, float>) return 1; else return std::is_integral_v<T> ? 2 : 3;
        }
        __global__ void k(int *out) {
            int t = threadIdx.x;
            int n = (int)(std::abs(-1.5f) * 2 + sqrt(4 * t * t) + std::pow(2, 3) + fmax(1, 0.5f) + ceil(t / 2) + std::floor(M_PI_2));
            n += __vadd4(0x7f80ff01u, 0x01010101u) == 0x80810002u;
            n += __vaddss4(0x7f80ff01u, 0x01ff0101u) == 0x7f800002u;
            n += __vabsdiffu4(0x01020304u, 0x04030201u) == 0x03010103u;
            n += __vcmpgts2(0x0001fffeu, 0x0000ffffu) == 0xffff0000u;
            n += __vsadu4(0x01020304u, 0x04030201u) == 8u;
            n += __dp2a_lo(0x00030002, 0x00000504, 1) == 24;
            __half2 h = __floats2half2_rn((float)t, 2.0f);
            h += __float2half2_rn(1.0f);
            h = h / make_half2(2.0f, 4.0f);
            __nv_bfloat16 b = __shfl_xor_sync(0xffffffffu, __float2bfloat16((float)t), 1);
            n += (int)(4 * __low2float(h)) + (int)(4 * __high2float(h)) + (int)__bfloat162float(b);
            n += __hbgt2(h, __float2half2_rn(0.25f)) + kind<float>() + 10 * kind<int>() + __half2int_rn(hceil(__float2half(0.25f)));
            out[t] = n + __builtin_ctz(8u | (unsigned)t << 5) + (std::make_unsigned_t<int>)3;
        }
        """,
        lambda t: 3 + 2 * t + 8 + 1 + t // 2 + 1 + 1 + 5 + 2 * (t + 1) + 3 + (t ^ 1) + 1 + 1 + 20 + 1 + 3 + 3,
    ),
}
"""Kernels of 32 threads, each with a number for a thread, and the numbers."""


def test_programs_of_newer_cpp_have_their_numbers(tmp_path: Path) -> None:
    for name, (source, expected) in PROGRAMS.items():
        (tmp_path / f"{name}.cu").write_text(source)
        module = windtunnel.load(tmp_path / f"{name}.cu")
        with windtunnel.device("l4", schedule=3) as accelerator:
            out = accelerator.to_device(np.zeros(32, np.int32))
            accelerator.launch(module.k, 1, 32, out)
            assert accelerator.to_host(out).tolist() == expected(np.arange(32)).tolist(), name


def test_opencl_c_takes_what_drivers_take(tmp_path: Path) -> None:
    # Constants that are floats beside vectors of floats, bit-fields, counters, and no extension of a vendor.
    (tmp_path / "drivers.cl").write_text("""
        #if __OPENCL_VERSION__ < 120 || defined(cl_amd_media_ops) || defined(cl_intel_subgroups)
        #error of a vendor
        #endif
        #pragma OPENCL EXTENSION cl_ext_atomic_counters_32 : enable
        typedef struct { uchar low : 3; uchar high : 5; } Parts;
        __kernel void k(__global int *out, counter32_t counter, __global float4 *vectors) {
            int i = get_global_id(0);
            atomic_inc(counter);
            float4 v = vectors[i];
            v *= 0.5;
            vectors[i] = 2.0 * v + (float)M_LOG2E * 0.0f;
            Parts parts = {1, 2};
            parts.low = i;
            out[i] = dot_acc_sat_4x8packed_su_int(0x01ff0203u, 0x01010102u, i) + parts.low + 100 * parts.high
                   + 1000 * (int)as_half8((float4)(0.0f)).s7;
        }
        """)
    module = windtunnel.load(tmp_path / "drivers.cl")
    with windtunnel.device("l4") as accelerator:
        out, counter = accelerator.to_device(np.zeros(16, np.int32)), accelerator.to_device(np.zeros(1, np.uint32))
        vectors = accelerator.to_device(np.arange(64, dtype=np.float32))
        accelerator.launch(module.k, 1, 16, out, counter, vectors)
        assert accelerator.to_host(out).tolist() == [3 * 2 + 2 - 1 + 1 + i + i % 8 + 200 for i in range(16)]
        assert accelerator.to_host(counter).tolist() == [16]
        assert accelerator.to_host(vectors).tolist() == list(range(64))
    assert any("constants without a suffix are floats" in note for note in module._module.unit.notes)


def test_an_object_whose_destructor_does_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "guard.cu").write_text("""
        struct Guard { int *at; __device__ Guard(int *p) : at(p) {} __device__ ~Guard() { *at = 1; } };
        struct Empty { int x; __device__ ~Empty() {} };
        __global__ void k(int *out) { Guard guard(out); }
        __global__ void empty(int *out) { Empty e; e.x = 3; out[0] = e.x; }
        """)
    module = windtunnel.load(tmp_path / "guard.cu")
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(1, np.int32))
        with pytest.raises(windtunnel.errors.InputError, match="'guard' of a class with a destructor"):
            accelerator.launch(module.k, 1, 1, out)
        accelerator.launch(module.empty, 1, 1, out)
        assert accelerator.to_host(out).tolist() == [3]


def test_doubles_rounded_in_a_direction_are_the_exact_ones(tmp_path: Path) -> None:
    (tmp_path / "rounded.cu").write_text("""
        #define ALL(M) __dadd_##M(x, y), __dmul_##M(x, y), __ddiv_##M(x, y), __fma_##M(x, y, z), __drcp_##M(y)
        __global__ void k(const double *a, const double *b, const double *c, double *out) {
            int i = threadIdx.x;
            double x = a[i], y = b[i], z = c[i], found[] = {ALL(rz), ALL(ru), ALL(rd), __dsqrt_ru(fabs(x)), __dsub_rd(x, y)};
            for (int n = 0; n < 17; n++) out[17 * i + n] = found[n];
        }
        """)
    module, random = windtunnel.load(tmp_path / "rounded.cu"), np.random.default_rng(2)
    numbers = random.standard_normal((3, 32)) * np.exp(5 * random.standard_normal((3, 32)))
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(32 * 17))
        accelerator.launch(module.k, 1, 32, *map(accelerator.to_device, numbers), out)
        rows = accelerator.to_host(out).reshape(32, 17)

    def down(x: Fraction) -> float:
        near = float(x)
        return near if Fraction(near) <= x else math.nextafter(near, -math.inf)

    for (a, b, c), row in zip(numbers.T, rows, strict=True):
        x, y, z = Fraction(a), Fraction(b), Fraction(c)
        exact = [x + y, x * y, x / y, x * y + z, 1 / y]
        toward_zero = [math.copysign(down(abs(one)), one) for one in exact]
        assert row[:15].tolist() == toward_zero + [-down(-one) for one in exact] + [down(one) for one in exact]
        assert Fraction(math.nextafter(row[15], 0)) ** 2 < abs(x) <= Fraction(row[15]) ** 2
        assert row[16] == down(x - y)


def test_local_memory_declared_within_a_block_is_that_of_the_group(tmp_path: Path) -> None:
    (tmp_path / "within.cl").write_text("""
        #define SIZE 32
        __kernel void k(__global int *out, int n) {
            if (n > 1) { /* two of them */
                __local int held[SIZE], last;
                __local int
                    more[SIZE];
                int t = get_local_id(0);
                held[t] = t; more[t] = 2 * t;
                if (t == SIZE - 1) last = 100;
                barrier(CLK_LOCAL_MEM_FENCE);
                out[t] = held[SIZE - 1 - t] + more[t] + last + 0.5f;
            }
        }
    """)
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(32, np.int32))
        accelerator.launch(windtunnel.load(tmp_path / "within.cl").k, 1, 32, out, 2)
        assert accelerator.to_host(out).tolist() == [131 + t for t in range(32)]
