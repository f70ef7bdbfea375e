"""C as kernels use it: each program has the numbers that C gives it, in lockstep and thread by thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors

PROGRAMS: dict[str, tuple[str, Any]] = {
    "classes": (
        """
        struct Base { int x; __device__ int get() const { return x; } };
        struct Derived : Base { int y; __device__ Derived(int a, int b) : y(b) { x = a; }
                                __device__ int sum() { return get() + y + x; } };
        class Counter { int value = 2; public: __device__ Counter &up() { ++value; return *this; }
                        __device__ operator int() const { return value; } };
        __global__ void k(int *out) {
            Derived d(threadIdx.x, 2);
            Counter c;
            c.up().up();
            out[threadIdx.x] = d.sum() + c;
        }
        """,
        lambda t: 2 * t + 6,
    ),
    "several base classes": (
        """
        struct A { int a; __device__ int get() const { return a; } };
        struct B { double *p; int a; __device__ int get2() { return a; } __device__ int both() { return get2() * 10; } };
        struct D : A, B {
            int a;
            __device__ int all() { return A::get() * 100 + get2() * 10 + a + this->both(); }
            __device__ int other() { return static_cast<B *>(this)->a + ((A *)this)->a; }
            __device__ int via(B *b) { return static_cast<D *>(b)->a; }
        };
        __device__ int takes(B &b) { return b.a; }
        __device__ int takes(B *b) { return b ? b->a : -1; }
        __global__ void k(int *out) {
            D d, e;
            d.A::a = 1; d.B::a = 2; d.a = threadIdx.x;
            e = d; ((B &)e).a = 5;
            D *p = &e;
            out[threadIdx.x] = d.all() + takes(d) + d.other() + p->via(p) + takes(p) * 1000 + p->other();
        }
        """,
        lambda t: 120 + t + 20 + 2 + 3 + t + 5000 + 6,
    ),
    "copies of structs of which a part was never set": (
        """
        struct D { double *p; float *q; int a, b; };
        __device__ D changed(D d) { d.a += 1; return d; }
        __global__ void k(int *out) {
            D d, e, f;
            d.a = threadIdx.x; e = d; f = changed(e);
            out[threadIdx.x] = f.a;
        }
        """,
        lambda t: t + 1,
    ),
    "choices between places": (
        """
        __device__ int f(int x) { return x + 1; }
        __device__ int g(int x) { return x - 1; }
        struct P { int a, b; __device__ int sum() const { return a + b; } };
        __constant__ int ca[4] = {1, 2, 3, 4}, cb[4] = {5, 6, 7, 8};
        template <typename T> __device__ void put(T &a, T b) { a = b; }
        __global__ void k(int *out) {
            __shared__ int sa[64], sb[64]; int t = threadIdx.x, u = t, v = 2 * t;
            sa[t] = t; sb[t] = -t;
            int (*h)(int) = t % 2 ? f : g;
            P p = {1, 2}, q = {3, 4};
            const P &r = t % 2 ? p : q;
            (t % 2 ? p : q).a = 9;
            put(t % 2 ? sa[t] : sb[t], 50);
            (t % 2 ? u : v) += 1000;
            out[t] = h(t) + r.sum() + p.a + sa[t] + sb[t] + (t % 2 ? sa : sb)[t] + (t % 2 ? ca : cb)[t % 4] + max(t > 3 ? u : v, 7);
        }
        """,
        lambda t: (
            np.where(t % 2, t + 1, t - 1)
            + np.where(t % 2, 11, 13)
            + np.where(t % 2, 9, 1)
            + np.where(t % 2, 50 - t, t + 50)
            + 50
            + t % 4
            + np.where(t % 2, 1, 5)
            + np.maximum(np.where(t > 3, np.where(t % 2, t + 1000, t), np.where(t % 2, 2 * t, 2 * t + 1000)), 7)
        ),  # fmt: skip
    ),
    "templates": (
        """
        template <typename T, int N> struct Vec {
            T v[N];
            __device__ T &operator[](int i) { return v[i]; }
            __device__ Vec operator+(const Vec &o) const { Vec r; for (int i = 0; i < N; ++i) r.v[i] = v[i] + o.v[i]; return r; }
        };
        template <typename T> __device__ T total(T x) { return x; }
        template <typename T, typename... R> __device__ T total(T x, R... r) { return x + total<T>(r...); }
        template <bool B> __device__ int pick(int a) { if constexpr (B) return a; else return -a; }
        __global__ void k(int *out) {
            Vec<int, 3> a, b;
            for (int i = 0; i < 3; ++i) { a[i] = i; b[i] = threadIdx.x; }
            Vec<int, 3> c = a + b;
            out[threadIdx.x] = total(c[0], c[1], c[2]) + pick<true>(5) + pick<false>(2);
        }
        """,
        lambda t: 3 * t + 6,
    ),
    "bit-fields": (
        """
        struct Packed { unsigned a : 3; int b : 5; unsigned c : 24; int d; };
        struct Nibbles { unsigned char low : 4, high : 4; };
        __global__ void k(int *out) {
            Packed p, q = {1, -2, 3, 4};
            p.a = 13; p.b = -9; p.c = 0xabcdef; p.d = threadIdx.x;
            p.a++; p.b -= 3;
            Nibbles n;
            n.low = 5; n.high = 0xA;
            Packed r = p;
            out[threadIdx.x] = r.a * 1000000 + r.b * 1000 + (r.c == 0xabcdef) + r.d + q.b * 10 + q.c + (*(unsigned char *)&n == 0xA5);
        }
        """,
        lambda t: 6000000 - 12000 + 1 + t - 20 + 3 + 1,
    ),
    "jumps to labels further on": (
        """
        __device__ int find(const int *a, int n, int x) {
            int r = -1;
            for (int i = 0; i < n; i++) {
                if (a[i] == x) { r = i; goto found; }
                for (int j = 0; j < 2; j++) if (a[i] == -x) goto negative;
            }
            goto none;
            found: return r;
            negative: return -100;
            none: return -2;
        }
        __global__ void k(int *out) {
            int v[4] = {3, 5, -7, 9}, sum = find(v, 4, 5) * 1000 + find(v, 4, 7) + find(v, 4, 8);
            if (threadIdx.x & 1) goto odd;
            sum += 10;
            odd:
            for (int i = 0; i < 4; i++) { if (i == 2) goto next; sum += i; next: sum += 20; }
            out[threadIdx.x] = sum;
        }
        """,
        lambda t: 1000 - 100 - 2 + np.where(t & 1, 0, 10) + 84,
    ),
    "pointers": (
        """
        struct Node { Node *next; int value; };
        __device__ void swap(int &a, int &b) { int kept = a; a = b; b = kept; }
        __device__ int *past(int *p, int i) { if (i < 0) return p; return p + i; }
        __device__ int twice(int x) { return 2 * x; }
        __device__ int negated(int x) { return -x; }
        __global__ void k(int *out) {
            int v[4] = {3, 1, 2, 0}, other = 9;
            swap(v[0], v[3]);
            int *both[2] = {v, v + 2}, **rows = both;
            int *chosen = threadIdx.x & 1 ? &other : past(v, 3);
            int (*f)(int) = threadIdx.x & 2 ? twice : negated;
            Node last = {nullptr, 5}, first = {&last, 6};
            out[threadIdx.x] = *rows[1] * 100 + *chosen * 10 + f(1) + (first.next ? first.next->value : 0) + int(&v[3] - v);
        }
        """,
        lambda t: 200 + np.where(t & 1, 90, 30) + np.where(t & 2, 2, -1) + 8,
    ),
    "lambdas": (
        """
        template <typename F> __device__ void each(int n, F f) { for (int i = 0; i < n; ++i) f(i); }
        __global__ void k(int *out) {
            int sum = 0, by = threadIdx.x;
            auto scaled = [by](int x) { return by * x; };
            by = 1000;
            each(4, [&](int i) { sum += scaled(i); });
            auto plus = [=](auto a) { return a + sum; };
            out[threadIdx.x] = plus(1);
        }
        """,
        lambda t: 6 * t + 1,
    ),
    "memory": (
        """
        union Word { float f; unsigned u; unsigned char b[4]; struct { unsigned short lo, hi; } h; };
        __constant__ float table[4] = {1, 2};
        __device__ int shared_by_all = 7;
        __global__ void k(int *out) {
            __shared__ struct { int held[32]; short n; } block;
            if (threadIdx.x == 0) block.n = 3;
            block.held[threadIdx.x] = threadIdx.x;
            __syncthreads();
            Word w;
            w.f = 1.0f;
            w.b[0] = 5;
            char bytes[8];
            *(int *)(bytes + 4) = 0x01020304;
            float4 v = make_float4(1, 2, 3, 4);
            float *p = (float *)&v;
            p[1] = 20;
            out[threadIdx.x] = block.held[31 - threadIdx.x] + block.n + (w.u == 0x3f800005) + w.h.hi + bytes[5] * 1000
                + int(v.y + table[1] + table[3]) + shared_by_all;
        }
        """,
        lambda t: 31 - t + 3 + 1 + 0x3F80 + 3000 + 22 + 7,
    ),
    "recursion": (
        """
        __device__ int factorial(int n) { if (n <= 1) return 1; return n * factorial(n - 1); }
        __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
        __device__ int odd(int n);
        __device__ int even(int n) { if (n == 0) return 1; else return odd(n - 1); }
        __device__ int odd(int n) { if (n == 0) return 0; return even(n - 1); }
        __device__ void add(int *sum, int n) { if (n == 0) return; *sum += n; add(sum, n - 1); }
        __global__ void k(int *out) {
            int t = threadIdx.x, sum = 0;
            add(&sum, t % 4);
            out[t] = factorial(t % 4) + 100 * even(t % 4) + 1000 * sum + 10000 * fibonacci(t % 4) + factorial(5);
        }
        """,
        lambda t: (
            np.array([1, 1, 2, 6])[t % 4]
            + 100 * (t % 2 == 0)
            + 1000 * np.array([0, 1, 3, 6])[t % 4]
            + 10000 * np.array([0, 1, 1, 2])[t % 4]
            + 120
        ),
    ),
    "tables of functions": (
        """
        typedef int (*operation)(int, int);
        __device__ int add(int a, int b) { return a + b; }
        __device__ int multiply(int a, int b) { return a * b; }
        __device__ operation table[] = {add, &multiply};
        __device__ int numbers[3] = {5, 6, 7};
        struct Entry { int code; operation act; const int *at; };
        __constant__ Entry entries[2] = {{3, multiply, numbers + 1}, {4, add, numbers}};
        __device__ int applied(operation f, int a) { return f(a, 1); }
        template <operation F> __device__ int pass(int a) { return F(a, 1) + applied(F, a); }
        template <int F(int, int), int *AT> __device__ int shifted(int a) { return F(a, *AT); }
        __global__ void k(int *out) {
            int t = threadIdx.x;
            operation local[2] = {multiply, add};
            out[t] = table[t % 2](t, 2) + local[t % 2](10, 20);
            for (const Entry &one : entries)
                if (one.code == 3 + t % 2) out[t] += one.act(1000, *one.at);
            out[t] += pass<add>(t) + shifted<multiply, numbers>(t);
        }
        """,
        lambda t: np.where(t % 2, 2 * t + 30 + 1005, t + 2 + 200 + 6000) + 2 * (t + 1) + 5 * t,
    ),
    "matrices of a warp": (
        """
        #include <mma.h>
        using namespace nvcuda;
        __global__ void k(int *out) {
            __shared__ signed char a[256], b[256];
            __shared__ int c[256];
            int t = threadIdx.x;
            for (int i = t; i < 256; i += 32) { a[i] = i / 16 - 8; b[i] = i % 16 == i / 16 ? 3 : 0; }
            __syncwarp();
            wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> left;
            wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> right;
            wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
            wmma::fill_fragment(sum, 1);
            wmma::load_matrix_sync(left, a, 16);
            wmma::load_matrix_sync(right, b, 16);
            wmma::mma_sync(sum, left, right, sum);
            for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2;
            wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
            __syncwarp();
            out[t] = c[t * 8];
        }
        """,
        lambda t: 2 * (1 + 3 * (t // 2 - 8)),
    ),
    "barriers with a number": (
        """
        #include <cooperative_groups.h>
        #include <cuda/pipeline>
        __device__ void arrive(int id) { asm volatile("bar.arrive %0, 32;" :: "r"(id) : "memory"); }
        __device__ void wait(int id) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(32) : "memory"); }
        __global__ void k(int *out) {
            __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
            __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
            __shared__ int held[32], staged[2][16];
            int t = threadIdx.x;
            if (t == 0) init(&barrier, 32);
            __syncthreads();
            if (t < 16) { held[t] = t; arrive(3); } else { wait(3); out[t] = held[31 - t]; }
            auto token = barrier.arrive();
            barrier.wait(std::move(token));
            held[t] = t;
            barrier.arrive_and_wait();
            if (t < 16) out[t] = held[31 - t];
            bool produces = t < 16;
            auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state,
                                            produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
            for (int n = 0; n < 3; n++) {
                if (produces) {
                    pipe.producer_acquire();
                    cuda::memcpy_async(&staged[n % 2][t], &out[t], sizeof(int), pipe);
                    pipe.producer_commit();
                } else {
                    pipe.consumer_wait();
                    out[t] += 100 * staged[n % 2][31 - t];
                    pipe.consumer_release();
                }
            }
        }
        """,
        lambda t: np.where(t < 16, 31 - t, 31 - t + 300 * t),
    ),
    "jumps": (
        """
        __device__ int first_factor(int n) {
            for (int i = 2; i < n; ++i)
                for (int j = 2; j < n; ++j)
                    if (i * j == n) return i;
            return 0;
        }
        __device__ int kind(int x) {
            switch (x & 7) {
            case 0: return 5;
            case 1: case 2: x += 3;
            case 3: x *= 2; break;
            default: x = -x;
            }
            return x;
        }
        __global__ void k(int *out) {
            int n = threadIdx.x, sum = 0, row[3] = {1, 2, 3};
            for (int j = 0; j < 10; ++j) {
                if (j == (n & 7)) continue;
                if (j > 7) break;
                switch (j) {
                case 2: continue;
                case 4: sum += 100; break;
                case 5: { sum += 7; break; }
                default: ++sum;
                }
            }
            int tries = 0;
            do { if (++tries == 2) continue; sum += 1; } while (tries < 4);
            for (int &r : row) { r *= 2; sum += r; }
            out[n] = sum * 1000 + first_factor(n) * 100 + kind(n);
        }
        """,
        None,
    ),
}


def jumps(t: int) -> int:
    """Return what the kernel of `jumps` computes, in Python."""
    total = 0
    for j in range(10):
        if j == (t & 7):
            continue
        if j > 7:
            break
        total += {2: 0, 4: 100, 5: 7}.get(j, 1)
    total += 3 + 12
    factor = next((i for i in range(2, t) for j in range(2, t) if i * j == t), 0)
    low = t & 7
    kind = 5 if low == 0 else 2 * (t + 3) if low in (1, 2) else 2 * t if low == 3 else -t
    return total * 1000 + factor * 100 + kind


@pytest.mark.parametrize("schedule", [None, 3])
def test_programs_have_the_numbers_of_c(tmp_path: Path, schedule: int | None) -> None:
    threads = np.arange(32)
    for name, (source, expected) in PROGRAMS.items():
        (tmp_path / f"{name}.cu").write_text(source)
        module = windtunnel.load(tmp_path / f"{name}.cu")
        with windtunnel.device("l4", schedule=schedule) as accelerator:
            out = accelerator.to_device(np.zeros(32, np.int32))
            accelerator.launch(module.k, 1, 32, out)
            result = accelerator.to_host(out)
        wanted = np.array([jumps(t) for t in range(32)]) if expected is None else expected(threads)
        assert result.tolist() == wanted.tolist(), name


FLIGHTS = """
#include <cuda_pipeline.h>
__global__ void own(const int *in, int *out) {
    __shared__ int held[32];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&held[t], &in[t], 4);
    __pipeline_commit();
#ifdef WAIT
    __pipeline_wait_prior(0);
#endif
    out[t] = held[t];
}
__global__ void source(int *in, int *out) {
    __shared__ int held[32];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&held[t], &in[t], 4);
    __pipeline_commit();
#ifdef WAIT
    __pipeline_wait_prior(0);
#endif
    in[t] = 0;
    __pipeline_wait_prior(0);
    out[t] = held[t];
}
"""
GROUPS = """
__kernel void copied(__global int *data) {
    __local int held[32];
    event_t event = async_work_group_copy(held, data, 32, 0);
#ifdef WAIT
    wait_group_events(1, &event);
#endif
    int value = held[31 - get_local_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    data[get_local_id(0)] = value;
}
__kernel void ordered(__global int *data) {
    data[get_local_id(0)] = 3;
    barrier(FENCE);
    data[31 - get_local_id(0)] += 1;
}
__kernel void differing(__global int *data) {
    __local int held[32];
    event_t event = async_work_group_copy(held, data + get_local_id(0) % 2, 16, 0);
    wait_group_events(1, &event);
}
typedef struct { int set, unset; } pair;
__kernel void member(__global int *data) {
    __local pair held[32];
    int t = get_local_id(0);
    held[t].set = t;
    barrier(CLK_LOCAL_MEM_FENCE);
    pair copy = held[31 - t];
    data[t] = copy.MEMBER;
}
__kernel void some(__global int *data) {
    __local int held[32];
    if (get_local_id(0) < 16) {
        event_t event = async_work_group_copy(held, data, 32, 0);
        wait_group_events(1, &event);
    }
}
"""


def verdict(file: Path, kernel: str, defines: dict[str, str], schedule: int | None, arrays: int) -> str | None:
    """Return the class of what a launch of 32 threads finds."""
    module = windtunnel.load(file, defines=defines)
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        buffers = [accelerator.to_device(np.arange(32, dtype=np.int32)) for _ in range(arrays)]
        try:
            accelerator.launch(getattr(module, kernel), 1, 32, *buffers)
        except errors.Finding as finding:
            return type(finding).__name__
    return None


@pytest.mark.parametrize("schedule", [None, 3])
def test_copies_in_flight_race_until_their_thread_waits(tmp_path: Path, schedule: int | None) -> None:
    (tmp_path / "flights.cu").write_text(FLIGHTS)
    (tmp_path / "groups.cl").write_text(GROUPS)
    for kernel in ("own", "source"):
        assert verdict(tmp_path / "flights.cu", kernel, {}, schedule, 2) == "DataRace"
        assert verdict(tmp_path / "flights.cu", kernel, {"WAIT": "1"}, schedule, 2) is None
    given = {"FENCE": "CLK_GLOBAL_MEM_FENCE", "MEMBER": "set"}
    assert verdict(tmp_path / "groups.cl", "copied", given, schedule, 1) == "DataRace"
    assert verdict(tmp_path / "groups.cl", "copied", {**given, "WAIT": "1"}, schedule, 1) is None
    assert verdict(tmp_path / "groups.cl", "some", given, schedule, 1) == "BarrierDivergence"
    assert verdict(tmp_path / "groups.cl", "differing", given, schedule, 1) == "BarrierDivergence"
    assert verdict(tmp_path / "groups.cl", "member", given, schedule, 1) is None
    assert verdict(tmp_path / "groups.cl", "member", {**given, "MEMBER": "unset"}, schedule, 1) == "UninitializedRead"


BARRIERS = """
#include <cuda/pipeline>
#define COUNT (MISTAKE == 2 ? 64 : 32)
__global__ void warps(int *out) {
    __shared__ int held[32];
    int t = threadIdx.x;
    if (t < 16) { held[t] = t; asm volatile("bar.arrive 2, %0;" :: "n"(COUNT) : "memory"); return; }
    if (MISTAKE == 1) out[t] = held[31 - t];
    asm volatile("bar.sync 2, %0;" :: "n"(COUNT) : "memory");
    out[t] = held[31 - t];
}
__global__ void apart(int *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int held[32];
    int t = threadIdx.x;
    if (t == 0) init(&barrier, MISTAKE == 2 ? 33 : 32);
    held[t] = 0;
    __syncthreads();
    held[t] = t;
    auto token = barrier.arrive();
    if (MISTAKE != 1) barrier.wait(token);
    out[t] = held[31 - t];
}
__global__ void staged(int *in) {
    __shared__ int held[2][32];
    int t = threadIdx.x;
    auto pipe = cuda::make_pipeline();
    for (int n = 0; n < 2; n++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&held[n][t], &in[t], cuda::aligned_size_t<4>(sizeof(int)), pipe);
        pipe.producer_commit();
    }
    for (int n = 0; n < 2; n++) {
        if (MISTAKE == 0 || n == 0) pipe.consumer_wait();
        held[n][t]++;
        pipe.consumer_release();
    }
}
"""


@pytest.mark.parametrize("schedule", [None, 3])
def test_barriers_of_numbers_and_in_two_parts_order_what_they_say(tmp_path: Path, schedule: int | None) -> None:
    (tmp_path / "barriers.cu").write_text(BARRIERS)
    # A copy of the second stage is in flight where that stage's wait is missing, whatever the number of the mistake.
    found = {
        kernel: [verdict(tmp_path / "barriers.cu", kernel, {"MISTAKE": str(n)}, schedule, 1) for n in range(3)]
        for kernel in ("warps", "apart", "staged")
    }
    assert found.pop("warps") in (
        [None, "UninitializedRead", "Deadlock"], [None, "DataRace", "Deadlock"]
    )  # fmt: skip
    assert found == {"apart": [None, "DataRace", "Deadlock"], "staged": [None, "DataRace", "DataRace"]}


def test_what_one_kernel_does_not_know_refuses_that_kernel_alone(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(
        "__device__ int helper(int n) { return unknown(n); }\n"
        "__global__ void k(int *a) { a[threadIdx.x] = helper(1); }\n__global__ void own(int *a) { a[threadIdx.x] = 1; }\n"
    )
    assert verdict(tmp_path / "two.cu", "own", {}, None, 1) is None
    with pytest.raises(errors.InputError, match=r"two.cu:1:39: use of undeclared identifier 'unknown'"):
        verdict(tmp_path / "two.cu", "k", {}, None, 1)


@pytest.mark.parametrize("schedule", [None, 1])
def test_a_part_of_a_struct_that_was_never_set_is_found_where_a_copy_of_it_is_read(
    tmp_path: Path, schedule: int | None
) -> None:
    (tmp_path / "copy.cu").write_text(
        "struct D { int *p; int a, b; };\n"
        "__global__ void k(int *a) {\n"
        "  D d, e, f; d.a = 1; if (threadIdx.x != 3) { d.b = 2; d.p = a; }\n"
        "  e = d; f = e; a[threadIdx.x] = f.a;\n  READ;\n}\n"
    )
    assert verdict(tmp_path / "copy.cu", "k", {"READ": ""}, schedule, 1) is None
    for read in ("a[threadIdx.x] = f.b", "D g = f; g.b++"):
        assert verdict(tmp_path / "copy.cu", "k", {"READ": read}, schedule, 1) == "UninitializedRead", read


def test_recursion_deeper_than_it_is_followed_is_an_error_and_no_finding(tmp_path: Path) -> None:
    (tmp_path / "deep.cu").write_text(
        "__device__ int depth(int n) { return n <= 0 ? 0 : 1 + depth(n - 1); }\n"
        "__global__ void k(int *a) { a[threadIdx.x] = depth(FIRST + a[threadIdx.x] % 4); }\n"
    )
    assert verdict(tmp_path / "deep.cu", "k", {"FIRST": "20"}, None, 1) is None
    with pytest.raises(errors.InputError, match=r"deep.cu:1:\d+: .*'depth' calls itself more than 24 times"):
        verdict(tmp_path / "deep.cu", "k", {"FIRST": "30"}, None, 1)


@pytest.mark.parametrize("schedule", [None, 3])
def test_a_barrier_orders_the_memory_that_it_names(tmp_path: Path, schedule: int | None) -> None:
    (tmp_path / "groups.cl").write_text(GROUPS)
    for fence, expected in (
        ("CLK_GLOBAL_MEM_FENCE", None),
        ("CLK_LOCAL_MEM_FENCE", "DataRace"),
        ("CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE", None),
    ):
        assert verdict(tmp_path / "groups.cl", "ordered", {"FENCE": fence}, schedule, 1) == expected, fence


def test_variables_of_the_file_keep_their_values_as_long_as_the_module(tmp_path: Path) -> None:
    (tmp_path / "count.cu").write_text(
        "__device__ int calls = 5;\n__global__ void k(int *out) { if (threadIdx.x == 0) out[0] = ++calls; }\n"
    )
    module = windtunnel.load(tmp_path / "count.cu")
    with windtunnel.device("l4") as accelerator:
        out = accelerator.empty(1, np.int32)
        for expected in (6, 7):
            accelerator.launch(module.k, 1, 32, out)
            assert accelerator.to_host(out)[0] == expected


def test_a_kernel_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text("__global__ void scale(int *a) { a[0] *= 2; }\n")
    module = windtunnel.load(tmp_path / "one.cu")
    with pytest.raises(AttributeError, match="has no kernel 'scales'; it has scale; did you mean 'scale'"):
        _ = module.scales
