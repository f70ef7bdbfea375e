"""`windtunnel check`: which accesses of threads and copies are ordered, and which are a race."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.checking import Command


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


def test_two_parameters_of_one_buffer_race_on_its_bytes(check: Command, tmp_path: Path) -> None:
    text = "- {file: k.cu, grid: 1, block: 32, args: {a: 'zeros:32', b: a}}"
    for body, code in (("a[i] = i; b[4 * i + 2] = 7;", 0), ("a[i] = i; b[(4 * i + 6) & 127] = 7;", 1)):
        (tmp_path / "k.cu").write_text(f"__global__ void k(int *a, char *b) {{ int i = threadIdx.x; {body} }}")
        found, out, _ = check(text, file="launches.yaml")
        assert found == code and ("DataRace" in out) == bool(code)


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
