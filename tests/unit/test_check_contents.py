"""`windtunnel check`: what buffers that are not given are made of, by what the kernel uses them for."""

from __future__ import annotations

import pytest
from tests.unit.checking import Command

_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_LAUNCH = ("--grid", "3", "--block", "32")


def kernel(parameters: str, body: str, before: str = "") -> str:
    """Return a kernel in which i is the index of the thread."""
    return f"{before}\n__global__ void k({parameters}) {{ {_I}\n{body} }}"


_LAST = """
__shared__ bool last;
if (threadIdx.x == 0) {{ partial[blockIdx.x] = in[i]; {} last = atomicAdd(count, 1u) == gridDim.x - 1; }}
__syncthreads();
if (last && threadIdx.x == 0) {{
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += ((volatile float *)partial)[b];
    *total = sum;
}}
"""
_WAIT = """
if (threadIdx.x == 0) {{ if (blockIdx.x {}) atomicAdd(here, 1); while (atomicAdd(here, 0) < gridDim.x); }}
"""


@pytest.mark.parametrize(
    ("parameters", "body", "finding", "words"),
    [
        ("const float *in, float *partial, unsigned *count, float *total", _LAST.format(""), "DataRace", "zeros in 'count'"),
        ("const float *in, float *partial, unsigned *count, float *total", _LAST.format("__threadfence();"), None,
         "zeros in 'count'"),
        ("int *here", _WAIT.format("> 0"), "Deadlock", "zeros in 'here'"),
        ("int *here", _WAIT.format(">= 0"), None, "zeros in 'here'"),
        # What also goes down does not begin with zero.
        ("int *free", "while (true) { int c = atomicAdd(free, 0); if (c > 0 && atomicCAS(free, c, c - 1) == c) break; } "
         "atomicAdd(free, 1);", None, ""),
        ("int *bins, const int *key", "atomicAdd(&bins[key[i]], 1);", None, ""),  # decides nothing
        ("int *seen, const int *key", "int k = key[i] % 8; if (seen[k] != -1) return; seen[k] = i;", "DataRace",
         "-1 in 'seen'"),
        ("int *seen", "if (!seen[i]) seen[i] = 1;", None, "zeros in 'seen'"),
    ],
)  # fmt: skip
def test_a_counter_is_checked_as_it_is_before_its_first_use(
    check: Command, parameters: str, body: str, finding: str | None, words: str
) -> None:
    code, out, err = check(kernel(parameters, body), *_LAUNCH)
    assert code == (finding is not None) and (finding or "") in out, out
    assert words in out + err and ("and one with" in out + err or "in a further launch" in out) == bool(words), (
        out,
        err,
    )


def test_what_is_waited_for_is_free_at_first_and_a_wait_in_vain_changes_nothing(check: Command) -> None:
    lock = "while (atomicCAS(lock, 1, 0) != 1); __threadfence(); *sum += 1; __threadfence(); atomicExch(lock, 1);"
    code, _, err = check(kernel("int *lock, int *sum", f"if (threadIdx.x == 0) {{ {lock} }}"), *_LAUNCH)
    assert code == 0 and "'lock' is not given, and is made up with 1 everywhere" in err
    table = "unsigned h = i; while (true) { unsigned old = atomicCAS(&table[h], ~0u, i); TURN }".replace(
        "TURN", "if (old == ~0u || old == i) break; h = (h + 1) % 128;"
    )
    code, _, err = check(kernel("unsigned *table", table), *_LAUNCH)
    assert code == 0 and "made up with 4,294,967,295 everywhere, because a compare-and-swap expects it" in err, err
    goal = kernel("int *here, int goal", "atomicAdd(here, 1); while (atomicAdd(here, 0) < goal);")
    code, _, err = check(goal, "--grid", "3", "--block", "1", "--arg", "here=zeros:1")
    assert code == 0
    goal = kernel(
        "int *here, int goal", "if (threadIdx.x == 0) { atomicAdd(here, 1); while (atomicAdd(here, 0) < goal); }"
    )
    code, _, err = check(goal, *_LAUNCH)
    assert code == 0 and "integers that are not given are 3, because threads wait for ever" in err
    for source, words in (
        (kernel("int *a", "while (true) { a[i] += 1; }"), ()),
        (kernel("int *here, int *out", "while (atomicAdd(here, 0) < 1); out[i] = 1;"), ("--arg", "here=zeros:1")),
    ):
        code, out, err = check(source, *_LAUNCH, *words)
        assert (code, "Deadlock" in out, "as zeros" in out + err) == (1, True, False), (out, err)


@pytest.mark.parametrize(
    ("parameters", "body", "wrong"),
    [
        ("int n, const int *p, const float *v, float *y",
         "if (i >= n) return; int first = p[i], many = p[i + 1] - first; float s = 0; "
         "for (int k = 0; k < many; ++k) s += v[first + k]; y[i] = s;", False),
        ("G g, int *degree, int *most",
         "if (i < g.n) { int d = g.off[i + 1] - g.off[i]; degree[i] = d; atomicMax(most, d); }", False),
        ("const int *p, const float *v, float *y",
         "__shared__ int row[3][2]; if (threadIdx.x < 2) row[blockIdx.x][threadIdx.x] = p[blockIdx.x * blockDim.x + "
         "31 + threadIdx.x]; __syncthreads(); float s = 0; "
         "for (int k = row[blockIdx.x][0] + threadIdx.x; k < row[blockIdx.x][1]; k += 32) s += v[k]; y[i] = s;", False),
        ("const int *p, const float *sums, float *y", "y[i] = sums[p[i + 1]] - sums[p[i]];", False),
        ("const int *p, int *y", "y[i] = p[i + 1] + p[i];", True),
        ("const float *p, float *y", "y[i] = p[i + 1] - p[i];", True),
        ("const int *p, int *y", "y[i] = p[p[i + 1]];", True),
    ],
)  # fmt: skip
def test_where_rows_begin_there_is_one_element_more(check: Command, parameters: str, body: str, wrong: bool) -> None:
    source = kernel(parameters, body, "struct G { int n; const int *off; };")
    code, out, _ = check(source, *_LAUNCH)
    assert (code, "OutOfBounds" in out) == (int(wrong), wrong), out


@pytest.mark.parametrize(
    ("parameters", "body", "note", "wrong"),
    [
        ("const int *to, const float *in, float *out", "out[to[i]] = in[i];", "to", False),
        ("const int *key, int *offset, int *out", "out[atomicAdd(&offset[key[i]], 1)] = key[i];", "offset", False),
        ("const int *key, const int *offset, int *out",
         "__shared__ int many[32]; many[threadIdx.x] = 0; __syncthreads(); int b = key[i] % 32, "
         "at = atomicAdd(&many[b], 1); out[offset[blockIdx.x * 32 + b] + at] = i;", "offset", False),
        ("const int *to, int *out", "out[to[i] / 2] = i;", "to", False),
        ("const int *to, int *out", "out[to[i] * 0] = i;", "", True),
        ("const int *key, int *many", "many[key[i]] += 1;", "", True),
        ("const int *to, int *out", "out[to[i] + i % 2] = out[i];", "", True),
    ],
)  # fmt: skip
def test_equal_places_that_are_made_up_are_no_race(
    check: Command, parameters: str, body: str, note: str, wrong: bool
) -> None:
    code, out, err = check(kernel(parameters, body), *_LAUNCH)
    assert (code, "DataRace" in out) == (int(wrong), wrong), out
    assert (f"'{note}' is not given, and is made up with distinct numbers" in err) == (not wrong), err


def test_rows_of_vectors_are_aligned_if_their_length_is_made_up(check: Command) -> None:
    row = "const float4 *row = (const float4 *)(x + blockIdx.x * width); "
    body = (
        row
        + "for (int k = threadIdx.x; k < width / 4; k += blockDim.x) { float4 v = row[k]; y[i] += v.x; } if (i < n) y[i] += 1;"
    )
    parameters = "const float *x, float *y, int n, int width"
    assert check(kernel(parameters, body), *_LAUNCH)[0] == 0
    assert check(kernel(parameters, body), "--grid", "3", "--block", "30")[0] == 0
    assert "MisalignedAccess" in check(kernel(parameters, body), *_LAUNCH, "--arg", "width=30")[1]


def test_a_step_of_a_reduction_that_never_reads_the_number_has_an_element_for_each_thread(check: Command) -> None:
    body = "__shared__ int s[32]; s[threadIdx.x] = in[i]; __syncthreads(); out[i] = s[31 - threadIdx.x];"
    assert check(kernel("const int *in, int *out, int n", body), *_LAUNCH)[0] == 0
    assert check(kernel("const int *in, int *out, int n", f"if (i == n) return; {body}"), *_LAUNCH)[0] == 0
    assert check(kernel("const int *in, int *out, int n", "out[i] = in[i];"), *_LAUNCH)[0] == 1


def test_memory_of_a_member_of_a_struct_grows(check: Command) -> None:
    source = kernel("G g, int *y", "y[i] = g.of[2 * i];", "struct G { int n; const int *of; };")
    code, _, err = check(source, *_LAUNCH)
    assert code == 0 and "the bounds of 'g.of' are not checked" in err
    assert "out of bounds for 'g.of' of 96" in check(source, *_LAUNCH, "--arg", "g.of=zeros:96")[1]


def test_a_radius_is_small_beside_images_too(check: Command) -> None:
    source = """
    __constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
    __kernel void blur(__read_only image2d_t in, __write_only image2d_t out, __constant float *mask, int r) {
        int2 p = (int2)(get_global_id(0), get_global_id(1));
        if (p.x >= get_image_width(in) || p.y >= get_image_height(in)) return;
        if (p.x + p.y == 0) printf("r=%d", r);
        float4 s = 0.0f;
        for (int y = -r; y <= r; ++y)
            for (int x = -r; x <= r; ++x)
                s += mask[(y + r) * (2 * r + 1) + x + r] * read_imagef(in, nearest, p + (int2)(x, y));
        write_imagef(out, p, s);
    }
    """
    code, out, _ = check(source, "--grid", "1,1", "--block", "8,4", file="k.cl")
    assert code == 0 and "r=4" in out


def test_a_product_of_tiles_has_several_of_them(check: Command) -> None:
    source = """
    __global__ void product(float *c, const float *a, const float *b, int wa, int wb) {
        __shared__ float as[8][8], bs[8][8];
        float sum = 0;
        int first = wa * 8 * blockIdx.y, x = threadIdx.x, y = threadIdx.y;
        for (int i = first, j = 8 * blockIdx.x; i <= first + wa - 1; i += 8, j += 8 * wb) {
            as[y][x] = a[i + wa * y + x];
            bs[y][x] = b[j + wb * y + x];
            __syncthreads();
            for (int k = 0; k < 8; ++k) sum += as[y][k] * bs[k][x];
            AFTER
        }
        c[wb * 8 * blockIdx.y + 8 * blockIdx.x + wb * y + x] = sum;
    }
    """
    launch = ("--grid", "2,2", "--block", "8,8")
    assert check(source, *launch, "-D", "AFTER=__syncthreads();")[0] == 0
    assert "DataRace" in check(source, *launch, "-D", "AFTER=")[1]
