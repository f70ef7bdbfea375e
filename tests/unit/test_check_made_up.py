"""`windtunnel check`: what arguments that are not given are made of, and which sizes a further launch has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.checking import Command

import windtunnel


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
        assert (code, f"the bounds of '{name}' are not checked" in err) == (0, True), (body, err)
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


def test_a_divisor_that_is_made_up_is_no_finding_of_its_own(check: Command) -> None:
    source = "__global__ void k(int *a, const int *b) {{ a[threadIdx.x] = 7 / (b[threadIdx.x]{}); }}"
    assert check(source.format(""), "--grid", "1", "--block", "32")[0] == 0
    for words in (("--arg", "b=arange:32"), ()):
        code, out, _ = check(source.format(" - 1" * (not words)), "--grid", "1", "--block", "32", *words)
        assert code == 1 and "DivisionByZero" in out


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


def test_a_pointer_that_is_given_as_0_is_null_in_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("__global__ void k(const int *given, int *out) { out[0] = given ? given[0] : -1; }\n")
    kernel = windtunnel.load(file).k
    with windtunnel.device("l4") as accelerator:
        out = accelerator.to_device(np.zeros(1, np.int32))
        for given, wanted in ((0, -1), (accelerator.to_device(np.array([5], np.int32)), 5), (0, -1)):
            accelerator.launch(kernel, 1, 1, given, out)
            assert accelerator.to_host(out)[0] == wanted


def test_a_note_says_for_which_finding_integers_are_not_the_number_of_threads(check: Command) -> None:
    kernel = "__global__ void k(const int *a, int *out, int n) { int i = threadIdx.x; out[i] = a[i] / (129 - n); }"
    _, _, err = check(kernel, "--grid", "1", "--block", "129")
    assert "integers that are not given are 128, because a division by zero follows" in err
    rows = """__global__ void rows(const float *in, float *out, int n) {
    float4 v = ((const float4 *)(in + threadIdx.x * n))[0];
    out[threadIdx.x] = v.x;
}
"""
    _, _, err = check(rows, "--grid", "1", "--block", "33")
    assert "integers that are not given are 32, because an address is not aligned" in err
