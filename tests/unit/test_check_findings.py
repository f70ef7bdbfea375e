"""`windtunnel check`: which kernels have a finding, and how the finding is worded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.app.check import Checked, check
from windtunnel.app.check_arguments import LaunchRequest
from windtunnel.app.check_launches import dims
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError


def checked(
    tmp_path: Path, source: str, grid: str = "1", block: str = "64", *, suffix: str = ".cu", shared_bytes: int = 0,
    schedules: int = 0, **arguments: str,
) -> Checked:  # fmt: skip
    """Return what a check of a kernel finds."""
    file = tmp_path / f"kernel{suffix}"
    file.write_text(source)
    request = LaunchRequest(file, None, dims(grid, "grid"), dims(block, "block"), arguments, shared_bytes)
    return check([request], schedules=schedules)


def verdict(found: Checked) -> str:
    """Return the class of the finding; ``clean`` for none."""
    return found.findings[0].finding if found.findings else "clean"


ATOMIC_READS = {
    "a load beside a plain read": ("x.load(cuda::memory_order_relaxed)", "out[i] = data[0];", "clean"),
    "a load beside a plain write": ("x.load(cuda::memory_order_relaxed)", "data[0] = i;", "DataRace"),
    "a volatile load beside a plain read": ("*(volatile int *)data", "out[i] = data[0];", "clean"),
    "a volatile load beside a plain write": ("*(volatile int *)data", "data[0] = i;", "DataRace"),
    "an operation that adds nothing is a change": ("atomicAdd(data, 0)", "out[i] = data[0];", "DataRace"),
}


@pytest.mark.parametrize("schedules", [0, 1])
def test_an_atomic_load_reads_and_changes_nothing(tmp_path: Path, schedules: int) -> None:
    for what, (load, other, expected) in ATOMIC_READS.items():
        source = f"""
            #include <cuda/atomic>
            __global__ void k(int *data, int *out) {{
                int i = blockIdx.x * blockDim.x + threadIdx.x;
                cuda::atomic_ref<int> x(data[0]);
                if (i == 70) {{ {other} }} else out[i] = {load};
            }}"""
        found = checked(tmp_path, source, "2", schedules=schedules, data="zeros:1")
        assert verdict(found) == expected, what
        if expected == "DataRace" and "load" in what:
            assert "atomically reads it" in found.findings[0].message
            assert "changes" not in found.findings[0].message


FLAGS = {
    "read after an acquire": ("release", "acquire", "out[0] = *data + *flag;", "clean"),
    "written after an acquire": ("release", "acquire", "*flag = *data;", "clean"),
    "read after a relaxed load": ("release", "relaxed", "out[0] = *flag;", "DataRace"),
    "read after a relaxed store": ("relaxed", "acquire", "out[0] = *flag;", "DataRace"),
}


def test_a_flag_that_an_acquire_has_seen_may_be_accessed_plainly(tmp_path: Path) -> None:
    for what, (stored, loaded, then, expected) in FLAGS.items():
        source = f"""
            #include <cuda/atomic>
            __global__ void k(int *data, int *flag, int *out) {{
                cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
                if (blockIdx.x == 0) {{ *data = 7; f.store(1, cuda::memory_order_{stored}); }}
                else {{ while (f.load(cuda::memory_order_{loaded}) == 0) {{}} {then} }}
            }}"""
        assert verdict(checked(tmp_path, source, "2", "1", flag="zeros:1")) == expected, what


def test_what_a_store_has_overwritten_is_not_acquired(tmp_path: Path) -> None:
    source = """
        #include <cuda/atomic>
        __global__ void k(int *data, int *flag, int *out) {
            cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
            if (blockIdx.x == 0) { *data = 7; f.store(1, cuda::memory_order_release); }
            else if (blockIdx.x == 1) { while (f.load(cuda::memory_order_relaxed) != 1) {} STORE }
            else { while (f.load(cuda::memory_order_relaxed) != 2) {} out[0] = f.load(cuda::memory_order_acquire) + *data; }
        }"""
    for store, expected in (("f.store(2, cuda::memory_order_relaxed);", "DataRace"), ("f.fetch_add(1);", "clean")):
        assert verdict(checked(tmp_path, source.replace("STORE", store), "3", "1", flag="zeros:1")) == expected


def test_a_divergence_at_a_barrier_is_named_before_what_follows_from_it(tmp_path: Path) -> None:
    unset = """
        __global__ void k(int *out) {
            __shared__ int s[64];
            int t = threadIdx.x;
            if (t >= 32) out[t] = s[t - 32];
            else { s[t] = t; __syncthreads(); }
        }"""
    race = """
        __global__ void k(int *out) {
            __shared__ int s[64];
            int t = threadIdx.x;
            if (t < 32) { s[t] = t; __threadfence(); __syncthreads(); }
            out[t] = s[63 - t];
        }"""
    for source, then in ((unset, "uninitialised read"), (race, "data race")):
        (found,) = checked(tmp_path, source).findings
        assert found.finding == "BarrierDivergence"
        assert f"threads that go on without it have this finding: {then}" in found.message
    mended = race.replace("if (t < 32) { s[t] = t; __threadfence(); __syncthreads(); }", "s[t] = t; __syncthreads();")
    assert verdict(checked(tmp_path, mended)) == "clean"
    unordered = race.replace(
        "if (t < 32) { s[t] = t; __threadfence(); __syncthreads(); }", "s[t] = t; __threadfence();"
    )
    (found,) = checked(tmp_path, unordered).findings
    assert found.finding in ("DataRace", "UninitializedRead")


WORDINGS = {
    ".cu": (
        (
            "{ for (int i = 0; i < threadIdx.x; i++) { out[threadIdx.x] = i; __threadfence(); __syncthreads(); } }",
            "thread 0 of block 0 has ended without reaching it this time",
        ),
        (
            "{ if (threadIdx.x > 0) return; __threadfence(); __syncthreads(); }",
            "thread 1 of block 0 has ended without reaching it",
        ),
        ("{ if (threadIdx.x < 2) out[(int)threadIdx.x - 2] = 1; }", "thread 0 of block 0, and 1 other thread;"),
    ),
    ".cl": (
        (
            "{ out[get_local_id(0) % 2] = get_local_id(0); /* a thread of a block */ }",
            "work-item 2 of work-group 0 writes it at line 1 (__kernel void k(__global int *out) "
            "{ out[get_local_id(0) % 2] = get_local_id(0); /* a thread of a block */ })",
        ),
        ("{ if (get_local_id(0) < 9) barrier(CLK_LOCAL_MEM_FENCE); }", "9 of 64 work-items of a work-group reach"),
    ),
}


def test_findings_count_and_name_what_they_are_about(tmp_path: Path) -> None:
    for suffix, cases in WORDINGS.items():
        head = "__global__ void k(int *out) " if suffix == ".cu" else "__kernel void k(__global int *out) "
        for body, words in cases:
            (found,) = checked(tmp_path, head + body, suffix=suffix).findings
            assert words in found.message, found.message
            assert "\x02" not in found.message


def test_a_structured_binding_names_elements_members_and_a_tuples_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """
        #include <tuple>
        #include <utility>
        __global__ void k(int *out) {
            int array[2] = {3, 4}, m[2][2] = {{1, 2}, {3, 4}};
            auto [a, b] = array;
            auto &[c, d] = array;
            c = 7;
            auto [e, f] = std::pair<int, int>(5, 6);
            auto [g, h, i] = std::make_tuple(1, 2.5f, 3);
            auto [r, s] = m;
            m[0][1] = 9;
            printf("%d %d %d %d %d %d %d %g %d %d %d", a, b, array[0], d, e, f, g, h, i, r[1], s[0]);
        }"""
    assert verdict(checked(tmp_path, source, block="1")) == "clean"
    assert capsys.readouterr().out == "3 4 7 4 5 6 1 2.5 3 2 3"


def test_what_cannot_be_translated_says_what_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("windtunnel.csource.statements.Statements._structured", fail)
    source = "__global__ void k(int *out) {\n  int p[2] = {1, 2};\n  auto [a, b] = p;\n  out[a] = b;\n}"
    with pytest.raises(InputError) as error:
        checked(tmp_path, source)
    text = str(error.value)
    assert error.value.exit_code == 70
    assert "kernel.cu:3:" in text
    assert "please report the statement (auto [a, b] = p;)" in text
    assert "'KeyError: 'x' in test_check_findings.py:" in text


def test_a_variadic_kernel_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kernel.cu:1:17: the variadic kernel 'k'"):
        checked(tmp_path, "__global__ void k(int *out, ...) { out[threadIdx.x] = 1; }")


def test_an_error_is_an_object_in_json_and_a_binary_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("kernel.cu", "kernel.cl", "kernel.py", "launches.yaml"):
        file = tmp_path / name
        file.write_bytes(b"\x7fELF\x02\x01\x00\x00__global__ void k() {}")
        with pytest.raises(SystemExit) as ended:
            main(["check", str(file), "--format", "json", *([] if "yaml" in name else ["--grid", "1", "--block", "1"])])
        printed = capsys.readouterr()
        (text,) = json.loads(printed.out).values()
        assert ended.value.code == 2
        assert printed.err == f"windtunnel: {text}\n"
        assert str(file) in text
        assert any(words in text for words in ("a binary file", "control characters"))


MOVED = """__global__ void k(const float *in, float *out) {{
    float v[4], sum = 0;
    int t = threadIdx.x;
    for (int i = 0; i < 4; i++) if (t + i < 60) v[i] = in[t];
    for (int i = 0; i < 4; i++) {{
        float x = __shfl_sync(0xffffffff, v[i], 31);
        {use}
    }}
    out[t] = sum;
}}"""
BROADCAST = """__kernel void k(__global const float *in, __global float *out) {{
    float v[4], sum = 0;
    int t = get_local_id(0);
    for (int i = 0; i < 4; i++) if (t + i < 60) v[i] = in[t];
    for (int i = 0; i < 4; i++) {{
        float x = sub_group_broadcast(v[i], 31);
        {use}
    }}
    out[t] = sum;
}}"""


def test_an_unset_element_that_lanes_pass_on_is_a_finding_once_it_is_used(tmp_path: Path) -> None:
    for suffix, source in ((".cu", MOVED), (".cl", BROADCAST)):
        assert verdict(checked(tmp_path, source.format(use="if (t < 32) sum += x;"), suffix=suffix)) == "clean"
        for use in ("sum += x;", "if (t == 40) out[0] = x;", "out[(int)x % 2] = 1;"):
            (found,) = checked(tmp_path, source.format(use=use), suffix=suffix).findings
            assert found.finding == "UninitializedRead"
            assert "before any write, and lanes have passed on" in found.message
    large = checked(tmp_path, MOVED.format(use="sum += x;"), grid="1025")
    assert verdict(large) == "UninitializedRead"


def test_an_index_of_a_member_of_several_dimensions_stays_within_the_member(tmp_path: Path) -> None:
    for index, expected in (
        ("[t][3]", "clean"), ("[0][t + 9]", "clean"), ("[2][1]", "clean"), ("[2][t + 2]", "OutOfBounds"),
        ("[t][t + 2]", "OutOfBounds"), ("[0][t - 1]", "OutOfBounds"), ("[1][t * 4]", "OutOfBounds"),
        ("[2][4]", "OutOfBounds"), ("[1][t - 4]", "clean"),
    ):  # fmt: skip
        source = f"""
            struct S {{ int before[4]; int m[3][4]; int after[8]; }};
            __global__ void k(S *s, int *out) {{ int t = threadIdx.x; out[t] = s->m{index}; }}"""
        assert verdict(checked(tmp_path, source, block="3")) == expected, index


def test_an_index_counts_elements_and_names_the_part_of_one(tmp_path: Path) -> None:
    for kind, read, words in (
        ("float4", "in[threadIdx.x + 1].y", "index 64 (bytes 4 to 7 of an element of 16) is out of bounds for 'in' of 64 elements, at"),
        ("int", "((char *)in)[4 * threadIdx.x + 4]",
         "index 64 (byte 0 of an element of 4) is out of bounds for 'in' of 64 elements, at"),
        ("float", "in[threadIdx.x + 1]", "index 64 is out of bounds for 'in' of 64 elements, at"),
    ):  # fmt: skip
        (found,) = checked(
            tmp_path, f"__global__ void k({kind} *in, float *out) {{ out[threadIdx.x] = {read}; }}"
        ).findings
        assert words in found.message


UNSET = {
    "no barrier, and a fence": ("t[i] = i; __threadfence_block(); out[i] = t[7 - i];", "DataRace"),
    "one thread writes later": ("if (i == 0) out[0] = t[7]; if (i == 7) t[7] = 1;", "DataRace"),
    "one thread sets a counter, and a fence": (
        "if (i == 7) t[0] = 0; __threadfence_block(); atomicAdd(&t[0], 1);", "DataRace"
    ),
    "all read first": ("out[i] = t[7 - i]; __threadfence_block(); t[i] = i;", "UninitializedRead"),
    "written behind a barrier": ("out[i] = t[7 - i]; __threadfence(); __syncthreads(); t[i] = i;", "UninitializedRead"),
    "never written": ("t[i] = i; __threadfence_block(); __syncthreads(); out[i] = t[i + 1];", "UninitializedRead"),
}  # fmt: skip


def test_a_read_before_any_write_is_a_race_if_another_thread_writes_without_order(tmp_path: Path) -> None:
    for what, (body, expected) in UNSET.items():
        source = f"__global__ void k(int *out) {{ __shared__ int t[9]; int i = threadIdx.x; {body} }}"
        for schedules in (0, 1):
            assert verdict(checked(tmp_path, source, block="8", schedules=schedules)) == expected, what


def test_findings_have_the_names_of_the_source(tmp_path: Path) -> None:
    struct = "struct Q { int x; }; struct P { int a, b; Q q; };"
    for body, name in (
        ("P p; p.a = 1; out[0] = p.a + p.b;", "'p.b'"), ("int4 v; v.x = 1; out[0] = v.x + v.z;", "'v.z'"),
        ("P p; p.a = 1; out[0] = p.q.x;", "'p.q.x'"), ('out[0] = "hello"[threadIdx.x];', "'\"hello\"'"),
    ):  # fmt: skip
        (found,) = checked(tmp_path, f"{struct} __global__ void k(int *out) {{ {body} }}").findings
        assert name in found.message, found.message


def test_functions_of_a_group_and_barriers_with_arrivals_are_named(tmp_path: Path) -> None:
    opencl = "__kernel void k(__global int *out) { int i = get_global_id(0); %s }"
    for body, words in (
        ("if (i != 3) out[i] = work_group_reduce_add(i);", "reach 'work_group_reduce_add' at"),
        ("if (i != 3) barrier(CLK_LOCAL_MEM_FENCE);", "reach the barrier at"),
        ("__local int s[64]; async_work_group_copy(s, out, 64, 0); out[i] = s[i];",
         "that work-group 0 began"),
        ("out[i / 2] = i;", "by a fence with an atomic operation or another launch"),
    ):  # fmt: skip
        grid = "1" if "group" in body or "barrier" in body else "64"
        block = "64" if grid == "1" else "1"
        (found,) = checked(tmp_path, opencl % body, grid, block, suffix=".cl").findings
        assert words in found.message, found.message
    source = """
        #include <cuda/barrier>
        __global__ void k(int *out) {
            __shared__ cuda::barrier<cuda::thread_scope_block> bar;
            if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
            __syncthreads();
            bar.arrive_and_wait();
        }"""
    (found,) = checked(tmp_path, source).findings
    assert found.finding == "Deadlock" and "the barrier 'bar': 64 of 65 arrivals have come" in found.message


def test_the_first_read_before_a_compare_and_swap_is_atomic_however_the_place_is_written(tmp_path: Path) -> None:
    loop = "int old = {place}, seen; do {{ seen = old; old = atomicCAS({at}, seen, i); }} while (old != seen);"
    for place, at, expected in (
        ("*p", "p", "clean"), ("head", "&head", "clean"), ("p[b]", "&p[b]", "clean"), ("p[b]", "p + b", "clean"),
        ("p[i % 2]", "&p[b]", "DataRace"),
    ):  # fmt: skip
        body = loop.format(place=place, at=at)
        source = f"__device__ int head; __global__ void k(int *p) {{ int i = threadIdx.x, b = i % 2; {body} }}"
        assert verdict(checked(tmp_path, source, p="zeros:2")) == expected, place


def test_a_base_class_is_initialised_by_a_list_and_get_fence_names_the_memory(tmp_path: Path) -> None:
    source = """
        struct B { int a; }; struct D : B { int b; __device__ D(int x) : B{x}, b(x + 1) {} };
        __global__ void k(int *out) { D d(threadIdx.x); out[threadIdx.x] = d.a; assert(d.b == threadIdx.x + 1); }"""
    assert verdict(checked(tmp_path, source)) == "clean"
    source = """
        __kernel void k(__global int *out) {
            __local int t[64]; int *p = get_local_id(0) % 2 ? (int *)&t[get_local_id(0)] : (int *)out;
            assert(get_fence(p) == (get_local_id(0) % 2 ? CLK_LOCAL_MEM_FENCE : CLK_GLOBAL_MEM_FENCE));
        }"""
    assert verdict(checked(tmp_path, source, suffix=".cl")) == "clean"


def test_what_is_made_up_and_leads_to_a_finding_is_changed_before_it_is_one(tmp_path: Path) -> None:
    lock = "__kernel void k(__global int *lock, __global int *o) { if (get_local_id(0) == 0) { while (TAKE); o[0]++; FREE } }"
    free = "mem_fence(CLK_GLOBAL_MEM_FENCE); atomic_xchg(lock, 0);"
    for take in ("atomic_xchg(lock, 1)", "atomic_cmpxchg(lock, 0, 1)"):
        source = lock.replace("TAKE", take)
        found = checked(tmp_path, source.replace("FREE", free), "2", "8", suffix=".cl")
        assert verdict(found) == "clean" and any(
            "'lock' is not given, and is made up as zeros" in n for n in found.notes
        )
        found = checked(tmp_path, source.replace("FREE", ""), "2", "8", suffix=".cl")
        assert (
            verdict(found) == "Deadlock"
            and "'lock' (16 elements) is not given and made up" in found.findings[0].message
        )
    divide = "__global__ void k(const int *in, int *o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) BODY }"
    for body, expected in {
        "o[i] = 100 % (n - 2 * i);": "DivisionByZero",
        "o[i] = i / (n - 128);": "clean",
        "o[i] = i / (64 / n);": "clean",
        "o[i / 2] = i / (n - 128);": "DataRace",
    }.items():
        assert verdict(checked(tmp_path, divide.replace("BODY", body), "2")) == expected, body
    grows = "__kernel void k(__global int *o, __local int *t) { int l = get_local_id(0); t[INDEX] = l; o[get_global_id(0)] = t[INDEX]; }"
    assert verdict(checked(tmp_path, grows.replace("INDEX", "2 * l"), "2", "256", suffix=".cl")) == "clean"
    assert verdict(checked(tmp_path, grows.replace("INDEX", "4096 * l"), "2", "256", suffix=".cl")) == "OutOfBounds"


def test_a_finding_names_the_integers_that_are_made_up(tmp_path: Path) -> None:
    source = "__global__ void k(int *a, int n) { int i = threadIdx.x; if (i < n) a[i / 2] = i; }"
    assert "n = 64 is not given and made up" in checked(tmp_path, source).findings[0].message
    assert "made up" not in checked(tmp_path, source, n="64").findings[0].message
    empty = checked(tmp_path, source, a="ones:0", n="64")
    assert verdict(empty) == "OutOfBounds" and not any("shared memory" in note for note in empty.notes)


def test_made_up_beginnings_of_rows_rise_and_have_one_more_than_the_rows(tmp_path: Path) -> None:
    source = """
    KIND void k(GLOBAL const int *ptr, GLOBAL const int *col, GLOBAL const float *x, GLOBAL float *y, int n) {
        int r = INDEX;
        if (r GUARD n) { float s = 0; BEGIN for (int j = FROM; j < TO; ++j) s += x[col[j]]; y[r] = s; }
    }"""
    cuda = {"KIND": "__global__", "GLOBAL": "", "INDEX": "blockIdx.x * blockDim.x + threadIdx.x"}
    opencl = {"KIND": "__kernel", "GLOBAL": "__global", "INDEX": "get_global_id(0)"}
    direct = {"BEGIN": "", "FROM": "ptr[r]", "TO": "ptr[r + 1]"}
    named = {"BEGIN": "int a = ptr[r], b = ptr[r + 1];", "FROM": "a", "TO": "b"}
    for suffix, words in ((".cu", {**cuda, **direct}), (".cl", {**opencl, **named})):
        for guard, expected in (("<", "clean"), ("<=", "OutOfBounds")):
            text = source.replace("GUARD", guard)
            for word, value in words.items():
                text = text.replace(word, value)
            assert verdict(checked(tmp_path, text, "2", suffix=suffix)) == expected, (suffix, guard)
