"""Assembly with registers of its own, predicates and carries, and members of bases of class-template instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors

ASSEMBLY = r"""
__device__ unsigned rotated(unsigned x) {
    unsigned r;
    asm("{\n\t.reg .u32 t<3>; // halves\n\tshl.b32 t1, %1, 7;\n\tshr.u32 t2, %1, 25;\n\tor.b32 %0, t1, t2;\n\t}" : "=r"(r) : "r"(x));
    return r;
}
__device__ unsigned shared_address(const void *p) {
    unsigned a;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(a) : "l"(p));
    return a;
}
__device__ unsigned reduced(unsigned a, unsigned b) {
    asm("{ .reg .pred %%p; setp.ge.u32 %%p, %[sum], %[most]; @%%p sub.u32 %[sum], %[sum], %[most]; }" : [sum] "+r"(a) : [most] "r"(b));
    return a;
}
__device__ int smaller(int a, int b) {
    int r;
    asm("{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.s32 %0, %1, %2, p; @!p add.s32 %0, %0, 0x64; }" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ void product(unsigned *r, const unsigned *a, const unsigned *b) {
    asm("{ .reg .u32 c; mul.lo.u32 %0, %4, %6; mul.hi.u32 %1, %4, %6; mad.lo.cc.u32 %1, %5, %6, %1; madc.hi.u32 %2, %5, %6, 0;"
        "mad.lo.cc.u32 %1, %4, %7, %1; madc.hi.cc.u32 %2, %4, %7, %2; addc.u32 c, 0, 0; mad.lo.cc.u32 %2, %5, %7, %2;"
        "madc.hi.u32 %3, %5, %7, c; }"
        : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}
__global__ void k(const unsigned *in, unsigned *out, unsigned *sum) {
    __shared__ unsigned held[32];
    unsigned t = threadIdx.x, *own = out + t * 12, x, low, high, warp;
    product(own, in + 2 * t, in + 2 * t + 2);
    unsigned long long difference;
    asm volatile("sub.cc.u32 %0, %1, %2;" : "=r"(low) : "r"(in[2 * t]), "r"(in[2 * t + 2]));
    asm volatile("subc.u32 %0, %1, %2;" : "=r"(high) : "r"(in[2 * t + 1]), "r"(in[2 * t + 3]));
    asm("mov.b64 %0, {%1, %2};" : "=l"(difference) : "r"(low), "r"(high));
    asm("mov.b64 {%0, %1}, %2;" : "=r"(own[4]), "=r"(own[5]) : "l"(difference));
    held[t] = in[t];
    __syncthreads();
    asm volatile("ld.shared.u32 %0, [%1 + 4];" : "=r"(x) : "r"(shared_address(&held[30 - t % 31])));
    own[6] = x; own[7] = rotated(in[t]); own[8] = reduced(t, 20); own[9] = (unsigned)smaller((int)t - 8, 3);
    asm("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm("cvt.rzi.s32.f32 %0, 0f40600000;" : "=r"(own[10]));
    asm volatile("red.global.add.u32 [%0], %1;" :: "l"(sum), "r"(t) : "memory");
    asm volatile("{ .reg .u32 before; atom.global.max.u32 before, [%0], 1; }" :: "l"(sum + 1) : "memory");
    own[11] = warp;
}
"""


@pytest.mark.parametrize("schedule", [None, 3])
def test_assembly_with_registers_of_its_own_has_the_numbers_of_ptx(tmp_path: Path, schedule: int | None) -> None:
    (tmp_path / "k.cu").write_text(ASSEMBLY)
    given = np.random.default_rng(1).integers(0, 2**32, 68, dtype=np.uint64)
    with windtunnel.device("l4", schedule=schedule) as accelerator:
        out, total = (accelerator.to_device(np.zeros(size, np.uint32)) for size in (32 * 12, 2))
        source = accelerator.to_device(given.astype(np.uint32))
        accelerator.launch(windtunnel.load(tmp_path / "k.cu").k, 1, 32, source, out, total)
        made = accelerator.to_host(out).reshape(32, 12).astype(object)
        assert accelerator.to_host(total).tolist() == [496, 1]
    words = [int(one) for one in given]
    for t in range(32):
        a, b = (words[at] | words[at + 1] << 32 for at in (2 * t, 2 * t + 2))
        assert sum(int(made[t, n]) << 32 * n for n in range(4)) == a * b
        assert (int(made[t, 5]) << 32 | int(made[t, 4])) == (a - b) % 2**64
        rotated = (words[t] << 7 | words[t] >> 25) & 0xFFFFFFFF
        smaller = t - 8 if t < 11 else 103
        expected = [words[31 - t % 31], rotated, t - 20 if t >= 20 else t, smaller % 2**32, 3, 0]
        assert made[t, 6:].tolist() == expected


@pytest.mark.parametrize(
    ("text", "named", "instead"),
    [
        ("{ .reg .u32 t; again: bra again; }", "again: bra again", "without jumps"),
        ("{ .reg .u32 t; bra done; }", "bra done", "without jumps"),
        ("cvt.rni.s32.f32 %0, 0f3F800000;", "cvt.rni.s32.f32 %0, 0f3F800000", "functions of the language"),
        ("@p mov.u32 %0, 1;", "the predicate 'p'", "a register .pred"),
    ],
)
def test_assembly_that_is_not_known_is_named(tmp_path: Path, text: str, named: str, instead: str) -> None:
    (tmp_path / "k.cu").write_text(f'__global__ void k(int *out) {{ asm("{text}" : "=r"(out[0])); }}\n')
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(1, np.int32))
        with pytest.raises(errors.InputError) as found:
            accelerator.launch(windtunnel.load(tmp_path / "k.cu").k, 1, 1, out)
    assert named in str(found.value)
    assert instead in str(found.value)


HEADER = """
namespace views {
template <typename T> struct Storage { T *data; int n; __device__ T get(int i) const { return data[i]; } };
template <int D> struct Extent { int sides[D]; __device__ int all() const { int t = 1; for (int s : sides) t *= s; return t; } };
}
"""
BASES = """
#include "views.h"
template <typename T> struct View : public views::Storage<T> {
    int step = 2;
    __device__ View(T *d, int n_) { this->data = d; this->n = n_; }
    __device__ T operator()(int i) const { return this->get(i * step); }
};
struct Empty {};
template <typename T, int D> class Tensor : public views::Storage<T>, Empty, protected views::Extent<D> {
    char tag = 3;
 public:
    __device__ Tensor(T *d) { this->data = d; this->sides[0] = this->sides[1] = 2; }
    __device__ T sum() const { T s = tag; for (int i = 0; i < this->all(); ++i) s += this->get(i); return s; }
};
template <typename Own, typename T> struct Twofold { __device__ T at(int i) const { return 2 * static_cast<const Own *>(this)->of(i); } };
template <typename T> struct Squared : Twofold<Squared<T>, T> { const T *p; __device__ T of(int i) const { return p[i] * p[i]; } };
template <typename T> struct Named { using Kind = views::Storage<T>; };
template <typename T> struct First : Named<T>::Kind { __device__ T first() const { return this->data[1]; } };
template <typename T> struct Last : First<T> { int own; };
__device__ int takes(const views::Storage<int> &s) { return s.n; }
__global__ void k(int *in, int *out) {
    int i = threadIdx.x;
    View<int> view(in, 7), copy = view;
    Tensor<int, 2> tensor(in);
    Squared<int> squared; squared.p = in;
    Last<int> last; last.data = in; last.own = 5; last.n = 1;
    Last<int> same = last;
    out[i] = copy(i) + tensor.sum() + squared.at(i) + same.first() + same.own + takes(view) + (int)sizeof(Tensor<int, 2>);
}
"""


def test_members_of_bases_of_class_template_instances_are_found(tmp_path: Path) -> None:
    (tmp_path / "views.h").write_text(HEADER)
    (tmp_path / "k.cu").write_text(BASES)
    given: Any = np.arange(64) + 3
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(32, np.int32))
        accelerator.launch(
            windtunnel.load(tmp_path / "k.cu").k, 1, 32, accelerator.to_device(given.astype(np.int32)), out
        )
        made = accelerator.to_host(out)
    i = np.arange(32)
    expected = given[2 * i] + 3 + given[:4].sum() + 2 * given[i] ** 2 + given[1] + 5 + 7 + 32
    assert made.tolist() == expected.tolist()
