"""`windtunnel check`: what it finds, its formats and exit codes, its arguments, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors
from windtunnel.cli.main import main

Command = Callable[..., tuple[int, str, str]]

SAXPY = """
__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
NEIGHBOUR = """
#define NEXT(i) ((i) + 1)
__global__ void neighbour(int *data) {
    data[threadIdx.x] = data[NEXT(threadIdx.x)];
}
"""
TWO = """
__global__ void fill(int *data, int value) { data[threadIdx.x] = value; }
__global__ void sum(const int *data, int *total) { atomicAdd(total, data[threadIdx.x]); }
"""


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that writes a source and checks it, and returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)

    def run(source: str | None, *words: str, file: str = "kernel.cu") -> tuple[int, str, str]:
        if source is not None:
            Path(file).write_text(source)
        with pytest.raises(SystemExit) as ended:
            main(["check", file, *words])
        captured = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return run


def test_a_clean_kernel_ends_with_0_and_a_finding_with_1(check: Command) -> None:
    assert check(SAXPY, "--grid", "2", "--block", "64")[0] == 0
    code, out, _ = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--arg", "data=arange:65")
    assert code == 1
    assert out.startswith("kernel.cu:4:5: DataRace: ")


def test_json_lists_the_class_the_file_the_lines_and_the_message(check: Command) -> None:
    code, out, _ = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--format", "json")
    found, further = json.loads(out)
    assert further["finding"] == "DataRace"  # with an element more
    assert (code, found["finding"], found["file"], found["lines"]) == (1, "OutOfBounds", "kernel.cu", [4])
    assert "data" in found["message"]
    assert set(found) == {"finding", "file", "lines", "message"}
    assert json.loads(check(SAXPY, "--grid", "1", "--block", "64", "--format", "json")[1]) == []


def test_sarif_names_the_rule_and_the_place_with_its_column(check: Command) -> None:
    out = check(NEIGHBOUR, "--grid", "1", "--block", "64", "--arg", "data=arange:65", "--format", "sarif")[1]
    log: dict[str, Any] = json.loads(out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "DataRace"
    assert place["artifactLocation"]["uri"] == "kernel.cu"
    assert place["region"] == {"startLine": 4, "startColumn": 5}
    source = "__global__ void k(int *out) {\n  out[0] = 1;\n  out[threadIdx.x / 2] = threadIdx.x;\n}\n"
    (run,) = json.loads(check(source, "--grid", "1", "--block", "64", "--format", "sarif")[1])["runs"]
    (result,) = run["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 2
    assert [one["physicalLocation"]["region"]["startLine"] for one in result["relatedLocations"]] == [3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arg", "m=5"], "no parameter 'm'; expected one of n, a, x, y"),
        (["--arg", "x=zeroes:5"], "did you mean 'zeros'?"),
        (["--arg", "x=zeros:5:int23"], "'int23' is no type of numbers"),
        (["--arg", "n=zeros:5"], "'n' is a number, not an array"),
        (["--arg", "n=0.5"], "0.5 for 'n', an integer"),
        (["--arg", "x=7"], "'x' is a pointer, not a number"),
        (["--arg", "x=local:7"], "'x' is no local memory"),
        (["--kernel", "saxpi"], "no kernel 'saxpi'; expected one of saxpy; did you mean 'saxpy'?"),
        (["--block", "2048"], "2,048"),
        (["-D", "1R=0"], "-D: '1R' is no name of a macro"),
        (["-I", "nowhere"], "-I: no folder 'nowhere'"),
    ],
)  # fmt: skip
def test_a_wrong_argument_ends_with_2_and_says_what_was_expected(
    check: Command, words: list[str], message: str
) -> None:
    given = ["--grid", "1", *([] if "--block" in words else ["--block", "32"]), *words]
    code, _, err = check(SAXPY, *given)
    assert code == 2
    assert message in err


def test_a_missing_size_and_a_missing_file_end_with_2(check: Command) -> None:
    assert check(SAXPY, "--block", "32")[0] == 2
    assert check(SAXPY, "--grid", "0", "--block", "32")[0] == 2
    code, _, err = check(None, "--grid", "1", "--block", "1", file="absent.cu")
    assert (code, "absent.cu" in err) == (2, True)


def test_what_clang_rejects_ends_with_2_its_message_and_its_line(check: Command) -> None:
    code, _, err = check("__global__ void k(int *a) {\n    a[0] = b;\n}\n", "--grid", "1", "--block", "1")
    assert code == 2
    assert err == "windtunnel: kernel.cu:2:12: use of undeclared identifier 'b'\n"


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


def test_a_copy_of_a_group_is_not_ordered_with_what_work_items_wrote_before(check: Command) -> None:
    source = """
    kernel void k(global int *g) {
        local int s[32];
        int l = get_local_id(0);
        s[l] = l;
        BARRIER;
        event_t e = async_work_group_copy(g, s, 32, 0);
        wait_group_events(1, &e);
    }
    """
    launch = ("--grid", "1", "--block", "32", "--arg", "g=zeros:32")
    assert "DataRace" in check("#define BARRIER\n" + source, *launch, file="kernel.cl")[1]
    ordered = "#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)\n" + source
    assert check(ordered, *launch, file="kernel.cl")[0] == 0


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


def test_volatile_flags_of_blocks_are_no_race_and_unordered_data_is(check: Command) -> None:
    source = """
    __device__ volatile int turn;
    __global__ void k(int *out) {
        while (turn != blockIdx.x) ;
        FENCE();
        out[0] += 1;
        FENCE();
        turn = blockIdx.x + 1;
    }
    """
    launch = ("--grid", "3", "--block", "1", "--arg", "out=zeros:1")
    assert check(source, *launch, "-D", "FENCE=__threadfence")[0] == 0
    assert "DataRace" in check(source, *launch, "-D", "FENCE=__syncthreads")[1]


def test_the_last_block_may_set_the_counter_back(check: Command) -> None:
    source = """
    __device__ unsigned count;
    __global__ void k(const int *in, int *part, int *out) {
        __shared__ bool last;
        if (threadIdx.x == 0) {
            part[blockIdx.x] = in[blockIdx.x];
            __threadfence();
            last = atomicInc(&count, gridDim.x) == gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
            out[0] = part[0] + part[1];
            count = 0;
        }
        EARLY
    }
    """
    launch = ("--grid", "2", "--block", "32", "--schedules", "2")
    assert check(source, *launch, "-D", "EARLY=")[0] == 0
    assert "DataRace" in check(source, *launch, "-D", "EARLY=if (threadIdx.x == 1) out[1] = count;")[1]


def test_a_fourth_element_that_is_never_set_is_a_finding_only_where_it_is_used(check: Command) -> None:
    source = """
    kernel void k(global float4 *out, global float *one) {
        float4 v;
        v.xyz = (float3)(1, 2, 3);
        v = max(v * 2.0f, (float4)(0));
        out[get_global_id(0)] = v;
        float4 w;
        w.xyz = v.xyz;
        one[get_global_id(0)] = w.PART;
    }
    """
    launch = ("--grid", "1", "--block", "8")
    assert check(source, *launch, "-D", "PART=z", file="kernel.cl")[0] == 0
    assert "UninitializedRead" in check(source, *launch, "-D", "PART=w", file="kernel.cl")[1]


def test_a_finding_in_a_header_bears_the_header_and_its_line(check: Command, tmp_path: Path) -> None:
    (tmp_path / "part.cuh").write_text("\n__device__ void put(int *a) {\n    a[threadIdx.x + 1] = 1;\n}\n")
    source = '#include "part.cuh"\n__global__ void k(int *a) { put(a); }\n'
    found = json.loads(check(source, "--grid", "1", "--block", "4", "--format", "json")[1])[0]
    assert (Path(found["file"]).name, found["lines"]) == ("part.cuh", [3])


def test_arguments_that_are_not_given_are_made_from_the_signature(check: Command) -> None:
    source = """
    #include <assert.h>
    __global__ void k(const float *x, const int *index, int n, float scale, unsigned char *bytes, int2 pair) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        assert(n == 128 && scale == 1.0f && pair.x == 128 && pair.y == 128);
        assert(index[i] >= 0 && index[i] < 128 && x[127] >= 0.0f && x[127] < 1.0f);
        bytes[i] = 1;
    }
    """
    assert check(source, "--grid", "2", "--block", "64")[:1] == (0,)
    last = "__global__ void k(float *x) { x[threadIdx.x + blockIdx.x * blockDim.x + 1] = 1; }"
    code, out, _ = check(last, "--grid", "2", "--block", "64")
    assert code == 1 and "'x' is not given, so it is made up: --arg x=random:N states its size" in out
    assert "made up" not in check(last, "--grid", "2", "--block", "64", "--arg", "x=ones:128")[1]


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


def test_memory_that_is_made_up_grows_where_a_kernel_has_several_elements_for_a_thread(check: Command) -> None:
    launch = ("--grid", "2", "--block", "64")
    start = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    cases = {
        "float *x, int pitch": ("x[threadIdx.x + blockIdx.x * pitch] = 1;", "x"),
        "const float2 *in, float *out": ("out[i] = in[2 * i].x + in[2 * i + 1].y;", "in"),
        "const float *a, float *out, int n": ("for (int k = 0; k < n; k++) out[i] = a[i * n + k];", "a"),
    }
    for parameters, (body, name) in cases.items():
        source = f"__global__ void k({parameters}) {{ {start} {body} }}"
        code, _, err = check(source, *launch)
        assert (code, f"'{name}' is not given, and is made up with" in err) == (0, True), (body, err)
        assert check(source, *launch, "--arg", f"{name}=random:128")[0] == 1
    # A race is found in the larger memory; an element just past the end, or before the beginning, remains a finding.
    for body, finding in {
        "x[i] = x[i + blockDim.x];": "DataRace",
        "for (int k = 0; k <= n; k++) y[i] = x[k];": "OutOfBounds",
        "y[i] = x[i - 1];": "OutOfBounds",
        "y[i] = x[i + 0x10000000];": "OutOfBounds",
    }.items():
        code, out, _ = check(f"__global__ void k(float *x, float *y, int n) {{ {start} {body} }}", *launch)
        assert code == 1 and finding in out, (body, out)
    local = "kernel void k(local int *s, global int *x) { s[2 * get_local_id(0)] = 1; x[get_global_id(0)] = 1; }"
    assert check(local, *launch, file="k.cl")[0] == 0


def test_dynamic_shared_memory_that_is_not_stated_is_made_up(check: Command) -> None:
    source = """
    __global__ void k(int *out) {
        extern __shared__ int held[];
        held[threadIdx.x] = 1;
        out[threadIdx.x] = held[threadIdx.x + FIRST];
    }
    """
    launch = ("--grid", "1", "--block", "32")
    code, _, err = check(source, *launch, "-D", "FIRST=0")
    assert (code, "8,192 bytes are made up: --shared-bytes" in err) == (0, True), err
    assert check(source, *launch, "-D", "FIRST=0", "--shared-bytes", "0")[0] == 1
    assert "OutOfBounds" in check(source, *launch, "-D", "FIRST=9999")[1]


def test_an_integer_that_is_made_up_is_no_cause_of_a_division_by_zero(check: Command) -> None:
    source = "__global__ void k(int *out, int n, int s) { out[threadIdx.x] = threadIdx.x % (n / (s * s)); }"
    assert check(source, "--grid", "1", "--block", "32")[0] == 0
    assert "DivisionByZero" in check(source, "--grid", "1", "--block", "32", "--arg", "n=32", "--arg", "s=32")[1]


def test_an_assertion_that_fails_is_a_finding(check: Command) -> None:
    source = "#include <cassert>\n__global__ void k(int n) {\n    assert(n < 3);\n}\n"
    code, out, _ = check(source, "--grid", "1", "--block", "2", "--arg", "n=3", "--format", "json")
    assert (code, json.loads(out)[0]["finding"], json.loads(out)[0]["lines"]) == (1, "AssertionFailed", [3])
    assert check(source, "--grid", "1", "--block", "2", "--arg", "n=2")[0] == 0


def test_dynamic_shared_memory_and_local_memory_have_the_sizes_that_are_given(check: Command) -> None:
    source = """
    __global__ void k(int *out) {
        extern __shared__ int held[];
        held[threadIdx.x] = 1;
        out[threadIdx.x] = held[threadIdx.x];
    }
    """
    launch = ("--grid", "1", "--block", "32")
    assert check(source, *launch, "--shared-bytes", "128")[0] == 0
    assert check(source, *launch, "--shared-bytes", "64")[0] == 1
    kernel = """
    __kernel void k(__local int *held, __global int *out) {
        held[get_local_id(0)] = 1;
        out[get_global_id(0)] = held[get_local_id(0)];
    }
    """
    assert check(kernel, *launch, file="k.cl")[0] == 0
    assert check(kernel, *launch, "--arg", "held=local:16", file="k.cl")[0] == 1


def test_a_list_of_launches_shares_buffers_by_name(check: Command, tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(TWO)
    fill = "- {file: two.cu, kernel: fill, grid: 1, block: 8, args: {data: 'empty:8', value: 3}}\n"
    add = "- {file: two.cu, kernel: sum, grid: 1, block: 8, args: {data: %s, total: 'zeros:1'}}\n"
    assert check(fill + add % "data", file="launches.yaml")[0] == 0
    assert check(fill.replace("block: 8", "block: 4") + add % "data", file="launches.yaml")[0] == 1
    code, _, err = check(fill + add % "dato", file="launches.yaml")
    assert (code, "no buffer 'dato'" in err) == (2, True)
    code, _, err = check(fill.replace("kernel:", "kernal:"), file="launches.yaml")
    assert (code, "no key 'kernal'" in err, "launches.yaml:1" in err) == (2, True, True)


def test_two_parameters_of_one_buffer_race_on_its_bytes(check: Command, tmp_path: Path) -> None:
    text = "- {file: k.cu, grid: 1, block: 32, args: {a: 'zeros:32', b: a}}"
    for body, code in (("a[i] = i; b[4 * i + 2] = 7;", 0), ("a[i] = i; b[(4 * i + 6) & 127] = 7;", 1)):
        (tmp_path / "k.cu").write_text(f"__global__ void k(int *a, char *b) {{ int i = threadIdx.x; {body} }}")
        found, out, _ = check(text, file="launches.yaml")
        assert found == code and ("DataRace" in out) == bool(code)


def test_a_divisor_that_is_made_up_is_no_finding_of_its_own(check: Command) -> None:
    source = "__global__ void k(int *a, const int *b) {{ a[threadIdx.x] = 7 / (b[threadIdx.x]{}); }}"
    assert check(source.format(""), "--grid", "1", "--block", "32")[0] == 0
    for words in (("--arg", "b=arange:32"), ()):
        code, out, _ = check(source.format(" - 1" * (not words)), "--grid", "1", "--block", "32", *words)
        assert code == 1 and "DivisionByZero" in out


def test_schedules_are_further_orders_of_the_threads(check: Command) -> None:
    source = """
    __global__ void crossed(int *locks, int *total) {
        int first = blockIdx.x;
        while (atomicCAS(&locks[first], 0, 1) != 0) {}
        while (atomicCAS(&locks[1 - first], 0, 1) != 0) {}
        atomicAdd(total, 1);
        atomicExch(&locks[1 - first], 0);
        atomicExch(&locks[first], 0);
    }
    """
    words = ("--grid", "2", "--block", "1", "--arg", "locks=zeros:2", "--arg", "total=zeros:1")
    code, out, _ = check(source, *words, "--schedules", "40", "--format", "json")
    assert (code, {found["finding"] for found in json.loads(out)}) == (1, {"Deadlock"})


def test_what_a_kernel_prints_is_no_part_of_the_json(check: Command) -> None:
    source = '#include <cstdio>\n__global__ void k() { printf("thread %d\\n", threadIdx.x); }\n'
    code, out, err = check(source, "--grid", "1", "--block", "2", "--format", "json")
    assert (code, json.loads(out), err) == (0, [], "thread 0\nthread 1\n")


def test_python_kernels_are_checked_too(check: Command) -> None:
    source = (
        "import windtunnel\nfrom windtunnel import grid, i32\n\n\n@windtunnel.kernel\ndef shifted(data: i32[:]):\n"
        "    data[grid(1)] = data[grid(1) + 1]\n"
    )
    words = ("--grid", "1", "--block", "8", "--arg", "data=arange:9", "--format", "json")
    code, out, _ = check(source, *words, file="kernels.py")
    assert (code, json.loads(out)[0]["finding"], json.loads(out)[0]["lines"]) == (1, "DataRace", [7])


def test_the_time_on_the_device_stands_beside_the_findings_but_not_in_json(check: Command) -> None:
    words = ("--grid", "1", "--block", "64", "--device", "l4")
    clean, found = check(SAXPY, *words)[1], check(NEIGHBOUR, *words, "--arg", "data=arange:65")[1]
    for out, kernel in ((clean, "saxpy"), (found, "neighbour")):
        assert out.splitlines()[-1].startswith(f"{kernel}: ") and " on l4, predicted (" in out
    assert "predicted" not in check(SAXPY, *words, "--format", "json")[1]
    (run,) = json.loads(check(SAXPY, *words, "--format", "sarif")[1])["runs"]
    (time,) = run["properties"]["predictedTimes"]
    assert time["kernel"] == "saxpy" and time["launches"] == 1 and time["device"] == "l4"
    assert 0 < time["duration_low_s"] < time["duration_s"] < time["duration_high_s"]


def test_numbers_of_a_struct_are_arguments_by_their_names(check: Command) -> None:
    source = """
    struct size { int width, height; };
    __global__ void area(size of, int *out) { out[of.width * of.height - 12] = 1; }
    """
    words = ("--grid", "1", "--block", "1", "--arg", "out=zeros:1", "--arg", "of.width=3")
    assert check(source, *words, "--arg", "of.height=4")[0] == 0
    assert check(source, *words, "--arg", "of.height=5")[0] == 1
    code, _, err = check(source, *words, "--arg", "of.depth=5")
    assert code == 2 and "no parameter 'of.depth'; expected one of of.width, of.height, out" in err


def test_a_finding_in_a_function_of_our_headers_is_at_the_line_that_calls_it(check: Command) -> None:
    out = check(
        "__global__ void get(const int *in, int *out) {\n  out[0] = __ldg(in + 9);\n}\n",
        "--grid", "1", "--block", "1", "--arg", "in=zeros:9",
    )[1]  # fmt: skip
    assert out.startswith("kernel.cu:2:12: OutOfBounds: ")


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


def test_a_pointer_that_is_given_as_0_is_null_in_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("__global__ void k(const int *given, int *out) { out[0] = given ? given[0] : -1; }\n")
    kernel = windtunnel.load(file).k
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(1, np.int32))
        for given, wanted in ((0, -1), (accelerator.to_device(np.array([5], np.int32)), 5), (0, -1)):
            accelerator.launch(kernel, 1, 1, given, out)
            assert accelerator.to_host(out)[0] == wanted


@pytest.mark.parametrize(("step", "races"), [("gridDim.x * blockDim.x", False), ("blockDim.x", True)])
def test_a_loop_whose_steps_are_the_grid_keeps_to_a_threads_own_elements(
    check: Command, step: str, races: bool
) -> None:
    source = f"""
    __global__ void scale(float *x, int n) {{
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += {step}) x[i] = 2.0f * x[i] + i;
    }}
    """
    code, out, _ = check(source, "--grid", "2", "--block", "32", "--arg", "x=random:200", "--arg", "n=200")
    assert (code == 1) == races and ("DataRace" in out) == races


def test_a_launch_that_never_ends_has_no_time(check: Command) -> None:
    source = "__global__ void wait(int *flag) { while (atomicAdd(flag, 0) == 0) {} }"
    code, out, _ = check(source, "--grid", "1", "--block", "1", "--arg", "flag=zeros:1")
    assert code == 1 and "Deadlock" in out and "predicted" not in out


_THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@pytest.mark.parametrize(
    ("parameters", "body", "finding"),
    [
        ("int *a, int n", "a[i] = i;", "OutOfBounds"),
        ("int *a, size_t num_elements", "if (i <= num_elements) a[i] = i;", "OutOfBounds"),
        ("int *a, const int *b, int n", "int v = b[i]; if (i < n) a[i] = v;", "OutOfBounds"),
        ("int *a, int n", "__shared__ int s[64]; if (i < n) s[threadIdx.x] = 1; __syncthreads(); "
                          "if (i < n) a[i] = s[threadIdx.x ^ 1];", "UninitializedRead"),
        ("int *a, int n", "if (4 * i < n) a[4 * i + 3] = i;", "OutOfBounds"),
        ("int *a, int n", "if (i < n && i < 42) a[3 * i + 2] = i;", None),  # several elements for each thread
        ("int *a, const int *b, int n", "a[i] = b[i] + (i + 1 < n ? b[i + 1] : 0);", None),  # n is about a neighbour
        ("int *a, int n", "if (i < n) a[i] = i;", None),
        ("int *a, int n", "if (i >= n) return; a[i] = i;", None),
        ("int *a, const int *b, unsigned n", "if (i > 0 && i < n - 1) a[i] = b[i - 1] + b[i + 1];", None),
        ("int *a, int size", "for (int j = i; j < size; j += gridDim.x * blockDim.x) a[j] = j;", None),
        ("int *a, int value", "a[i] = value;", None),  # an element for each thread
        ("int *a, int offset", "if (i >= offset) a[i] += 1; else a[i] += 2;", None),
        ("int *a, int n", "__shared__ int s[64]; s[threadIdx.x] = a[i]; __syncthreads(); "
                          "a[i] = s[(n - 1 - i) % 64];", None),  # n is a multiple of the block, perhaps
        ("const int *p, int *q, int n", "int best = 0; for (int j = 0; j < n; ++j) best += p[j]; q[i] = best;", None),
    ],
)  # fmt: skip
def test_a_kernel_that_takes_a_number_of_elements_is_checked_with_fewer_than_threads(
    check: Command, parameters: str, body: str, finding: str | None
) -> None:
    source = f"__global__ void kernel(int more, {parameters}) {{ {_THREAD} {body} }}"
    code, out, _ = check(source, "--grid", "2", "--block", "64", "--arg", "more=1")
    assert code == (finding is not None), out
    assert finding is None or (
        f": {finding}: " in out
        and "in a second launch, which check adds, with 107 elements, fewer than the threads" in out
    )
    assert check(source, "--grid", "2", "--block", "64", "--arg", f"{parameters.split()[-1]}=128")[0] == 0 or (
        finding == "OutOfBounds"
    )


def test_a_kernel_with_stated_preconditions_has_one_size(check: Command) -> None:
    source = f"__global__ void kernel(int *a, int n) {{ __requires(n == 128); {_THREAD} a[i] = i; }}"
    assert check(source, "--grid", "2", "--block", "64")[0] == 0
    assert check(source.replace("__requires(n == 128);", ""), "--grid", "2", "--block", "64")[0] == 1


def test_python_kernels_that_ask_for_the_size_of_an_array_are_checked_with_fewer_elements(check: Command) -> None:
    head = "from windtunnel import f32, grid, kernel\n@kernel\ndef scale(a: f32[:], b: f32[:]):\n    i = grid(1)\n"
    words = ("--grid", "2", "--block", "64")
    assert check(head + "    if i < a.size:\n        b[i] = a[i]\n", *words, file="k.py")[0] == 0
    assert check(head + "    b[i] = a[i]\n", *words, file="k.py")[0] == 0
    code, out, _ = check(head + "    if i <= a.size:\n        b[i] = 2.0\n", *words, file="k.py")
    assert code == 1 and "index 107 is out of bounds for 'b' of 107 elements" in out


def test_sarif_of_a_source_that_does_not_compile_says_that_the_check_was_not_done(check: Command) -> None:
    code, out, err = check(
        "__global__ void k(int *a) {\n    a[0] = b;\n}", "--grid", "1", "--block", "1", "--format", "sarif"
    )
    (run,) = json.loads(out)["runs"]
    (invocation,) = run["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert (code, invocation["executionSuccessful"], invocation["exitCode"], run["results"]) == (2, False, 2, [])
    assert "use of undeclared identifier 'b'" in notification["message"]["text"] and "undeclared" in err
    place = notification["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("kernel.cu", 2)
    out = check(SAXPY, "--grid", "1", "--block", "32", "--format", "sarif")[1]
    assert json.loads(out)["runs"][0]["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]


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


def test_a_kernel_of_numba_is_referred_to_emulate(check: Command) -> None:
    source = "from numba import cuda\n\n@cuda.jit\ndef double(a):\n    a[0] *= 2\n"
    for words in ((), ("--kernel", "double")):
        code, _, err = check(source, "--grid", "1", "--block", "1", *words, file="k.py")
        assert code == 2 and "k.py:4: 'double' is a kernel of Numba CUDA" in err and "windtunnel emulate k.py" in err


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
