"""`windtunnel check`: which kernels have a finding, and how the finding is worded."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.app.check import Checked, LaunchRequest, check, dims


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
