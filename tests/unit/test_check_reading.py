"""`windtunnel check`: what of CUDA C, OpenCL C and their headers is read, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.checking import NEIGHBOUR, Command

import windtunnel
from windtunnel import errors


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("int i = 0; again: if (++i < 3) goto again; a[0] = i;", "goto that goes back"),
        ("a[0] = recursive(100);", "'recursive' calls itself"),
        ('asm("vset.u32.u32.eq %0, 1, 2;" : "=r"(a[0]));', "the assembly 'vset.u32.u32.eq %0, 1, 2'"),
        ("struct S { int x; __device__ S() : x(1) {} }; S *p = new S[2]; a[0] = p[0].x;", "objects with a constructor"),
        ("a[0] = host_only;", "'host_only'"),
        ("struct { char c; int low : 3; } s; s.low = 1; a[0] = s.low;", "the bit-field 'low'"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named_with_its_line(check: Command, body: str, message: str) -> None:
    head = "int host_only;\n__device__ int recursive(int n) { return n ? recursive(n - 1) : 0; }\n"
    code, _, err = check(head + "__global__ void k(int *a) {\n" + body + "\n}\n", "--grid", "1", "--block", "1")
    assert code == 2
    assert message in err
    assert err.startswith("windtunnel: kernel.cu:")


def test_constants_become_integers_as_numbers_at_run_time_do(check: Command) -> None:
    casts = [
        f"({to}){x}" for to in ("int", "unsigned", "signed char", "long long") for x in ("1e20f", "-1e20f", "-1.9f")
    ]
    same = " ".join(
        f"assert({one} == {one.replace(')', ')(zero + ')}));" for one in [*casts, "(int)NAN", "(int)INFINITY"]
    )
    source = f"#include <cassert>\n__global__ void k(const float *x) {{ float zero = x[0] * 0; {same} }}"
    assert check(source, "--grid", "1", "--block", "1")[0] == 0


PARTS = """
#include <cassert>
struct Set { int m, n; __device__ Set(int v = 3) : m(v) { n = m + 1; } };
struct Valued { int z = 4; };
struct Derived : Set { int y = 7; __device__ Derived() {} __device__ Derived(int q) : Set(q) {} };
struct Both : Valued { struct { int w = 6; }; Derived member; };
__global__ void k(int *a) {
    Derived one, two(8); Both *three = new Both; Both four;
    assert(one.m == 3 && one.n == 4 && one.y == 7 && two.m == 8 && two.y == 7);
    assert(four.z == 4 && four.w == 6 && four.member.n == 4 && three->member.y == 7);
    a[threadIdx.x] = one.m;
}
"""


def test_bases_and_members_without_a_value_are_constructed(check: Command) -> None:
    code, out, err = check(PARTS, "--grid", "1", "--block", "4")
    assert code == 0, out + err


VIRTUAL = """
#include <cassert>
struct Base { __device__ virtual int f() const { return 1; } __device__ virtual int g() const = 0; };
struct Derived : Base {
  __device__ int f() const override { return 2; }
  __device__ int g() const override { return f() + Base::f() + this->f(); }
};
template <class T> __device__ int called(const T &b) { return b.f() + b.g(); }
__global__ void k(int *a) { Derived d; a[threadIdx.x] = called<CLASS>(d); assert(a[threadIdx.x] == 7); }
"""


def test_a_virtual_method_is_called_of_an_object_whose_class_is_known(check: Command) -> None:
    launch = ("--grid", "1", "--block", "4")
    code, out, _ = check(VIRTUAL, *launch, "-D", "CLASS=Derived")
    assert code == 0, out
    code, _, err = check(VIRTUAL, *launch, "-D", "CLASS=Base")
    assert code == 2
    assert "kernel.cu:8:63: a call of the virtual method 'f' of an object that may be of a derived class" in err


def test_no_header_outside_of_the_folders_is_read(check: Command, tmp_path: Path) -> None:
    kernel = "__global__ void k(int *a) { a[threadIdx.x] = N; }\n"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "size.h").write_text("#define N 3\n")
    launch = ("--grid", "1", "--block", "4")
    (tmp_path / "source").mkdir()
    file = "source/kernel.cu"
    for name in ("../outside/size.h", str(outside / "size.h")):
        code, _, err = check(f'#include "{name}"\n' + kernel, *launch, file=file)
        assert code == 2
        assert "outside of the source's folder and those of -I" in err
        assert "source/kernel.cu:1" in err
    assert check("#include <size.h>\n" + kernel, *launch, file=file)[0] == 2
    assert check("#include <size.h>\n" + kernel, *launch, "-I", str(outside), file=file)[0] == 0
    # Names that the prelude also uses, for parameters of templates.
    assert check(kernel.replace("int", "T"), *launch, "-D", "N=4", "-DT=int", file=file)[0] == 0


def test_errors_in_functions_of_the_host_are_notes_and_the_kernel_is_checked(check: Command) -> None:
    host = """
    #include <iostream>
    #include <vector>
    int main() {
        std::vector<float> x(64);
        float *device;
        cudaMalloc(&device, 256);
        neighbour<<<1, 64>>>((int *)device);
        std::cout << "done" << std::endl;
    }
    """
    code, out, err = check(NEIGHBOUR + host, "--grid", "1", "--block", "64", "--arg", "data=arange:65")
    assert (code, "DataRace" in out) == (1, True)
    assert "note: kernel.cu:10: in a declaration of the host, which is not run: no member named 'vector'" in err
    code, _, err = check(NEIGHBOUR + "__device__ void f() { std::cout; }\n", "--grid", "1", "--block", "64")
    assert (code, "kernel.cu:6" in err) == (2, True)


def test_headers_that_are_not_found_are_taken_as_empty_and_named(check: Command) -> None:
    host = """
    #include <GL/gl.h>
    #include <boost/any.hpp>
    #include "cutil.h"
    using boost::any;
    typedef pthread_t Thread;
    std::multimap<int, int> cache() { return {}; }
    template <typename T> void fill(std::vector<T> &v) { v.clear(); }
    """
    code, out, err = check(host + NEIGHBOUR, "--grid", "1", "--block", "64", "--arg", "data=arange:65")
    assert (code, "DataRace" in out) == (1, True)
    for line, name in ((2, "GL/gl.h"), (3, "boost/any.hpp"), (4, "cutil.h")):
        assert f"note: kernel.cu:{line}: the header '{name}' is not found, and is taken as empty" in err
    assert "note: kernel.cu:8: in a declaration of the host" in err
    wrong = "typedef missing Number;\n__global__ void k(Number *a) { a[threadIdx.x] = 1; }\n"
    code, _, err = check(wrong, "--grid", "1", "--block", "1")
    assert (code, "kernel.cu:1:9: unknown type name 'missing'" in err) == (2, True)
    wrong = "struct S { missing m; int n; };\n__global__ void k(int *a) { S s; s.n = 1; a[0] = s.n; }\n"
    assert check(wrong, "--grid", "1", "--block", "1")[0] == 2
    for stated in ('#error "define BLOCK"\n', 'static_assert(BLOCK % 32 == 0, "a multiple of 32");\n'):
        code, _, err = check("#define BLOCK 33\n" + stated + NEIGHBOUR, "--grid", "1", "--block", "64")
        assert (code, "kernel.cu:2:" in err) == (2, True)
    assert check('#include "own.h"\n' + NEIGHBOUR, "--grid", "1", "--block", "64")[0] == 2


def test_images_and_textures_have_made_up_texels_in_a_check_and_are_refused_in_programs(
    check: Command, tmp_path: Path
) -> None:
    textures = """
    texture<float, 1> table;
    texture<uchar4, 2, cudaReadModeNormalizedFloat> colours;
    surface<void, 2> canvas;
    __global__ void k(float *out, cudaTextureObject_t given) {
        int i = threadIdx.x;
        float4 c = tex2D(colours, i + 0.5f, 1.0f);
        uchar4 old;
        surf2Dread(&old, canvas, i * 4, 0);
        surf2Dwrite(old, canvas, i * 4, 0, cudaBoundaryModeTrap);
        assert(c.w >= 0 && c.w < 1 && "normalized" && tex1Dfetch(table, i) == tex1Dfetch(table, i));
        out[i] = tex1Dfetch(table, i) + tex2D<float>(given, i, 2) + old.x;
    }
    """
    images = """
    const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_FILTER_NEAREST;
    float4 texel(read_only image2d_t from, int2 at) { return read_imagef(from, nearest, at); }
    kernel void k(read_only image2d_t from, write_only image2d_t to, sampler_t own, global float *out) {
        int2 at = (int2)(get_global_id(0), get_global_id(1));
        if (at.x < get_image_width(from)) write_imagef(to, at, texel(from, at));
        out[at.x] = read_imagef(from, own, convert_float2(at)).x + read_imageui(from, own, at).y;
    }
    """
    for name, source in (("kernel.cu", textures), ("kernel.cl", images)):
        code, _, err = check(source, "--grid", "1", "--block", "8", file=name)
        assert (code, "the contents of images and textures are made up" in err) == (0, True), err
        module = windtunnel.load(tmp_path / name)
        with windtunnel.device("l4") as accelerator, pytest.raises(errors.InputError, match=f"{name}.*not known here"):
            accelerator.launch(module.k, 1, 8, accelerator.empty(8, np.float32), 0)


def test_cuda_of_older_and_newer_programs_is_read(check: Command) -> None:
    source = """
    #include <curand_kernel.h>
    #include <cooperative_groups.h>
    #include <type_traits>
    #include "helper_math.h"
    namespace cg = cooperative_groups;
    __device__ int total(cg::thread_group g, int *held, int v) {
        for (int i = g.size() / 2; i > 0; i /= 2) {
            held[g.thread_rank()] = v; g.sync();
            if (g.thread_rank() < i) v += held[g.thread_rank() + i];
            g.sync();
        }
        return v;
    }
    __device__ unsigned lane() { unsigned r; asm("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }
    template <int N> __global__ void k(float4 *a, clock_t *when, int wait) {
        __shared__ alignas(16) int held[32];
        register int i = threadIdx.x;
        curandState state;
        curand_init(1, i, 0, &state);
        float u = curand_uniform(&state);
        assert(u > 0 && u <= 1 && lane() == i % 32 && umin(3u, 2u) == 2);
        clock_t start = clock();
        while (clock() - start < wait) ;
        when[i] = start;
        int sum = total(cg::this_thread_block(), held, i);
        int only;
        unsigned first;
        if (i == 0) { only = sum; first = 7; }
        assert(__shfl_sync(~0u, (int)first, 0) == 7);
        assert(__shfl_sync(~0u, only, 0) == 496 && std::is_integral<int>::value);
        int e;
        assert(frexpf(12.0f, &e) == 0.75f && e == 4 && remquof(7.5f, 2.0f, &e) == -0.5f && e == 4);
        a[i] = clamp(a[i] * 2.0f + make_float4(u), 0.0f, 1.0f) + normalize(a[i]);
    }
    int main() { float4 *a = 0; clock_t *t = 0; k<4><<<1, 32>>>(a, t, 5); }
    """
    code, out, _ = check(source, "--grid", "1", "--block", "32", "--arg", "wait=1000000")
    assert (code, out.splitlines()[0]) == (0, "nothing found (1 launch)")


def test_opencl_of_older_programs_is_read(check: Command) -> None:
    source = """
    #include <missing/opencl.h>
    #define T 2
    __constant float turn = 3.0f * T;
    __constant struct { int a; float b[2]; } table = {1, {T / 2.0f, -1}};
    struct __attribute__((packed)) Record { char c; int i; };
    struct Bounds { union { float4 low; float each[4]; }; int n; };
    int popcount(int x) { int c = 0; while (x) { x &= x - 1; c++; } return c; }
    kernel __attribute__((reqd_work_group_size(8, 1, 1))) void k(
        global struct Record *r, global float4 *v, global struct Bounds *b, size_t n, global int *out
    ) {
        register size_t i = get_global_id(0);
        global float *flat = v;
        if (i < n) r[i].i = popcount(7) + (int)turn + (int)table.b[0];
        flat[i] = b[i].low.x + b[i].each[i & 3] + v[i][(i + 1) & 3];
        out[i] = r[i].i;
        __requires(n > 0);
        assert(out[i] == 10 && "sum");
    }
    """
    code, out, err = check(source, "--grid", "1", "--block", "8", file="kernel.cl")
    assert (code, "DataRace" in out) == (1, True)  # flat[i] of one item is in v[i] of another
    assert "the header 'missing/opencl.h' is not found" in err
    assert check(source.replace("flat[i] =", "b[i].low.y ="), "--grid", "1", "--block", "8", file="kernel.cl")[0] == 0


def test_an_instance_is_found_in_the_namespace_of_its_template(check: Command) -> None:
    source = """
    namespace a { namespace {
    struct Twice { __device__ float operator()(float x) const { return 2 * x; } };
    template <typename F> __global__ void k(float *x) { x[threadIdx.x] = F()(x[threadIdx.x]); }
    template <typename F> __global__ void j(float *x) { x[threadIdx.x] = F()(x[0]); }
    void launch(float *x) { k<Twice><<<1, 32>>>(x); }
    } }
    """
    launch = ("--grid", "1", "--block", "32", "--kernel")
    assert check(source, *launch, "k")[0] == 0
    assert "DataRace" in check(source, *launch, "j<Twice>")[1]


def test_includes_of_macros_and_lambdas_of_the_host_for_the_device_are_read(check: Command, tmp_path: Path) -> None:
    (tmp_path / "part.cuh").write_text("#define ONE 1.0f\n")
    source = """
    #include "ATen/Other.h"
    #include <thrust/for_each.h>
    #define PART "part.cuh"
    #ifdef OTHER
    #include OTHER
    #endif
    #include PART
    template <typename T> void copy(const T *in, int n, T *out) {
        thrust::for_each(thrust::make_counting_iterator(0), n, [=] __device__(int i) { out[i] = in[i]; });
    }
    template <int bits> __global__ void k(half *a, float4 *b) {
        constexpr int bits = 3; // which Clang refuses, and nvcc does not
        float4 v;
        asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(b + threadIdx.x));
        asm volatile("st.global.v2.f32 [%0+8], {%1,%2};" :: "l"(b + AT), "f"(v.x), "f"(v.w));
        a[threadIdx.x] = __float2half(ONE);
    }
    template __global__ void k<4>(half *, float4 *);
    """
    launch = ("--grid", "1", "--block", "32", "-D", "AT=threadIdx.x")
    assert check(source, *launch)[0] == 0
    assert "DataRace" in check(source, *launch[:-1], "AT=0")[1]
    code, _, err = check(source, *launch, "-D", 'OTHER="../other.h"')
    assert (code, "'../other.h' file not found" in err) == (2, True), err
    Path(tmp_path.parent / "other.h").write_text("")
    assert "outside of the source's folder" in check(source, *launch, "-D", 'OTHER="../other.h"')[2]
    assert "outside" in check(source.replace('PART "part.cuh"', 'PART "../other.h"'), *launch)[2]
    assert "outside" in check('%:include "../other.h"\n' + source, *launch)[2]
    folder = source.replace('PART "part.cuh"', "UP ../\n#define PART <UP/other.h>")
    assert ((found := check(folder, *launch))[0], "outside" in found[2]) == (2, True)


def test_an_error_names_the_header_that_is_not_found(check: Command) -> None:
    source = "// cub\n#include <cub/cub.cuh>\n__global__ void k(int *a) { cub::WarpReduce<int> reduce; }"
    code, _, err = check(source, "--grid", "1", "--block", "32")
    assert (
        code == 2
        and "kernel.cu:3:29: use of undeclared identifier 'cub'; expected the header <cub/cub.cuh> (line 2)" in err
    )
    source += "\n__global__ void own(int *a) { a[threadIdx.x] = 1; }"
    code, _, err = check(source, "--grid", "1", "--block", "32", "--kernel", "own")
    assert code == 0 and "note: kernel.cu:3:29: kernels that need this function are refused" in err


def test_macros_with_plain_names_do_not_disturb_our_headers(check: Command) -> None:
    headers = (
        "cooperative_groups.h", "cooperative_groups/memcpy_async.h", "cooperative_groups/reduce.h",
        "cooperative_groups/scan.h", "cuda/atomic", "cuda/barrier", "cuda/latch", "cuda/pipeline", "cuda/semaphore",
        "mma.h", "tuple",
    )  # fmt: skip
    source = "".join(f"#include <{one}>\n" for one in headers) + "__global__ void k(T *out) { out[threadIdx.x] = N; }"
    macros = [word for name in "ABCDEFGHIKLMNPRSUVW" for word in ("-D", f"{name}=4")]
    code, _, err = check(source, "--grid", "1", "--block", "8", "-D", "T=float", *macros)
    assert code == 0, err


def test_work_items_of_a_group_and_of_a_sub_group_compute_together(check: Command) -> None:
    source = """
    kernel void k(global int *a) {
        int t = get_local_id(0), lane = get_sub_group_local_id(), n = get_sub_group_size(), s;
        assert(n == (t < 64 ? 32 : 16) && lane == t % 32 && get_num_sub_groups() == 3 && get_sub_group_id() == t / 32);
        s = sub_group_reduce_add(lane);
        assert(s == n * (n - 1) / 2 && sub_group_broadcast(t, 3) == t / 32 * 32 + 3 && sub_group_all(lane < 40));
        assert(sub_group_scan_inclusive_add(1) == lane + 1);
        assert(sub_group_scan_exclusive_max(lane) == (lane ? lane - 1 : INT_MIN));
        s = work_group_reduce_add(t);
        assert(s == 3160 && work_group_scan_exclusive_min(2.5f) == (t ? 2.5f : INFINITY));
        assert(work_group_broadcast(t, 5) == 5 && work_group_any(t == 70));
    }
    """
    launch = ("--grid", "2", "--block", "80")
    code, out, _ = check(source, *launch, file="kernel.cl")
    assert (code, out.splitlines()[0]) == (0, "nothing found (1 launch)")
    few = "kernel void k(global int *a) { if (get_local_id(0) < 3) a[0] = work_group_reduce_add(1); }"
    assert "BarrierDivergence" in check(few, *launch, file="kernel.cl")[1]


def test_bit_fields_of_several_types_have_the_values_that_were_stored(check: Command) -> None:
    source = """
    struct Bits { unsigned a : 3; int c : 4; unsigned rest : 9; };
    __global__ void k(int *out) {
        Bits b;
        b.a = 1;
        b.c = -2;
        assert(b.a == 1 && b.c == -2);
        out[0] = b.a;
    }
    """
    assert check(source, "--grid", "1", "--block", "1")[0] == 0
    code, _, err = check(source.replace("rest : 9", "rest : 9 = 5"), "--grid", "1", "--block", "1")
    assert (code, "an initial value of the bit-field 'rest'" in err) == (2, True)


def test_a_product_and_a_sum_are_rounded_once_unless_fmad_or_a_pragma_says_no(tmp_path: Path) -> None:
    once = np.float32(np.float64(np.float32(0.1)) * np.float64(np.float32(0.1)) - np.float64(np.float32(0.01)))
    each = np.float32(0.1) * np.float32(0.1) - np.float32(0.01)
    body = "__global__ void k(float *x) { x[0] = x[0] * x[0] - x[1]; }\n"
    cases = {"once": ("", True, once), "each": ("", False, each),
             "pragma": ("#pragma clang fp contract(off)\n", True, each)}  # fmt: skip
    for name, (head, fmad, wanted) in cases.items():
        file = tmp_path / f"{name}.cu"
        file.write_text(head + body)
        with windtunnel.device("l4") as accelerator:
            x = accelerator.to_device(np.array([0.1, 0.01], np.float32))
            accelerator.launch(windtunnel.load(file, fmad=fmad).k, 1, 1, x)
            assert accelerator.to_host(x)[0] == wanted, name
