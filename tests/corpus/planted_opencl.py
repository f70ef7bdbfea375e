"""Kernels in OpenCL C with planted mistakes, and each without its mistake.

``MISTAKE`` is defined for the wrong form. All take a buffer of 64 integers (0, 1, 2 ...), and are launched as 2 groups of
16 work-items.
"""

from __future__ import annotations

from collections.abc import Mapping

PLANTED: Mapping[str, tuple[str, str]] = {
    "barrier_missing": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
            int t = get_local_id(0);
            held[t] = data[get_global_id(0)];
        #ifndef MISTAKE
            barrier(CLK_LOCAL_MEM_FENCE);
        #endif
            data[get_global_id(0)] = held[15 - t];
        }
        """,
    ),
    "barrier_of_the_other_memory": (
        "DataRace",
        """
        #ifdef MISTAKE
        #define FENCE CLK_GLOBAL_MEM_FENCE
        #else
        #define FENCE CLK_LOCAL_MEM_FENCE
        #endif
        __kernel void k(__global int *data) {
            __local int held[16];
            int t = get_local_id(0);
            held[t] = data[get_global_id(0)];
            barrier(FENCE);
            data[get_global_id(0)] = held[15 - t];
        }
        """,
    ),
    "second_barrier_missing": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
            int t = get_local_id(0), sum = 0;
            for (int part = 0; part < 2; ++part) {
                held[t] = data[(get_global_id(0) + 16 * part) % 32] + part;
                barrier(CLK_LOCAL_MEM_FENCE);
                sum += held[15 - t];
        #ifndef MISTAKE
                barrier(CLK_LOCAL_MEM_FENCE);
        #endif
            }
            data[32 + get_global_id(0)] = sum;
        }
        """,
    ),
    "groups_meet_in_global_memory": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            int i = get_global_id(0);
        #ifdef MISTAKE
            data[i % 16] = i;
        #else
            data[i] = i;
        #endif
        }
        """,
    ),
    "counter_without_atomic": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
        #ifdef MISTAKE
            data[0]++;
        #else
            atomic_inc(data);
        #endif
        }
        """,
    ),
    "atomic_beside_plain_read": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            atomic_add(&data[0], 1);
        #ifdef MISTAKE
            data[1 + get_global_id(0)] = data[0];
        #endif
        }
        """,
    ),
    "vector_overlaps_its_neighbour": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            int i = get_global_id(0);
        #ifdef MISTAKE
            vstore2((int2)(i, -i), 0, data + i);
        #else
            vstore2((int2)(i, -i), i % 32, data);
        #endif
        }
        """,
    ),
    "copy_without_wait": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
            event_t event = async_work_group_copy(held, data + 16 * get_group_id(0), 16, 0);
        #ifndef MISTAKE
            wait_group_events(1, &event);
        #endif
            data[32 + get_global_id(0)] = held[get_local_id(0)];
        }
        """,
    ),
    "source_changed_during_a_copy": (
        "DataRace",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
            event_t event = async_work_group_copy(held, data + 16 * get_group_id(0), 16, 0);
        #ifdef MISTAKE
            data[get_global_id(0)] = 1;
            wait_group_events(1, &event);
        #else
            wait_group_events(1, &event);
            data[get_global_id(0)] = 1;
        #endif
        }
        """,
    ),
    "guard_one_too_far": (
        "OutOfBounds",
        """
        #ifdef MISTAKE
        #define LAST 64
        #else
        #define LAST 63
        #endif
        __kernel void k(__global int *data) {
            int i = get_global_id(0) + 33;
            if (i <= LAST) data[i] = i;
        }
        """,
    ),
    "negative_index": (
        "OutOfBounds",
        """
        __kernel void k(__global int *data) {
            int i = get_global_id(0);
        #ifndef MISTAKE
            if (i > 0)
        #endif
                data[32 + i] = data[i - 1];
        }
        """,
    ),
    "local_array_too_small": (
        "OutOfBounds",
        """
        #ifdef MISTAKE
        #define SIZE 15
        #else
        #define SIZE 16
        #endif
        __kernel void k(__global int *data) {
            __local int held[SIZE];
            held[get_local_id(0)] = 1;
            data[get_global_id(0)] = held[get_local_id(0)];
        }
        """,
    ),
    "private_array_too_small": (
        "OutOfBounds",
        """
        __kernel void k(__global int *data) {
            int held[4] = {1, 2, 3, 4};
        #ifdef MISTAKE
            data[get_global_id(0)] = held[data[get_global_id(0)] % 5];
        #else
            data[get_global_id(0)] = held[data[get_global_id(0)] % 4];
        #endif
        }
        """,
    ),
    "copy_longer_than_the_array": (
        "OutOfBounds",
        """
        #ifdef MISTAKE
        #define COUNT 17
        #else
        #define COUNT 16
        #endif
        __kernel void k(__global int *data) {
            __local int held[16];
            event_t event = async_work_group_copy(held, data, COUNT, 0);
            wait_group_events(1, &event);
        }
        """,
    ),
    "null_pointer": (
        "OutOfBounds",
        """
        __kernel void k(__global int *data) {
            __global int *at = 0;
        #ifndef MISTAKE
            at = data;
        #endif
            at[get_global_id(0)] = 1;
        }
        """,
    ),
    "accumulator_not_set": (
        "UninitializedRead",
        """
        __kernel void k(__global int *data) {
        #ifdef MISTAKE
            int sum;
        #else
            int sum = 0;
        #endif
            for (int j = 0; j < 3; ++j) sum += j;
            data[get_global_id(0)] = sum;
        }
        """,
    ),
    "variable_set_in_one_branch": (
        "UninitializedRead",
        """
        __kernel void k(__global int *data) {
            int value;
            if (get_local_id(0) < 8) value = 1;
        #ifndef MISTAKE
            else value = 2;
        #endif
            data[get_global_id(0)] = value;
        }
        """,
    ),
    "local_memory_not_set": (
        "UninitializedRead",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
            int t = get_local_id(0);
        #ifdef MISTAKE
            if (t % 2)
        #endif
                held[t] = t;
            barrier(CLK_LOCAL_MEM_FENCE);
            data[get_global_id(0)] = held[15 - t];
        }
        """,
    ),
    "member_not_set": (
        "UninitializedRead",
        """
        typedef struct { int first; int second; } pair;
        __kernel void k(__global pair *data) {
            pair made, copy;
            made.first = 1;
        #ifndef MISTAKE
            made.second = 2;
        #endif
            copy = made;
            data[get_global_id(0)] = made;
        }
        """,
    ),
    "barrier_in_a_branch": (
        "BarrierDivergence",
        """
        __kernel void k(__global int *data) {
        #ifdef MISTAKE
            if (get_local_id(0) < 8)
        #endif
                barrier(CLK_LOCAL_MEM_FENCE);
            data[get_global_id(0)] = 1;
        }
        """,
    ),
    "barrier_after_a_return": (
        "BarrierDivergence",
        """
        __kernel void k(__global int *data) {
        #ifdef MISTAKE
            if (get_local_id(0) == 3) return;
        #endif
            barrier(CLK_LOCAL_MEM_FENCE);
            data[get_global_id(0)] = 1;
        }
        """,
    ),
    "loops_of_other_lengths": (
        "BarrierDivergence",
        """
        __kernel void k(__global int *data) {
            int turns = 4;
        #ifdef MISTAKE
            turns += get_local_id(0) % 2;
        #endif
            for (int j = 0; j < turns; ++j) barrier(CLK_GLOBAL_MEM_FENCE);
            data[get_global_id(0)] = turns;
        }
        """,
    ),
    "copy_by_part_of_a_group": (
        "BarrierDivergence",
        """
        __kernel void k(__global int *data) {
            __local int held[16];
        #ifdef MISTAKE
            if (get_local_id(0) < 8)
        #endif
            {
                event_t event = async_work_group_copy(held, data, 16, 0);
                wait_group_events(1, &event);
            }
        }
        """,
    ),
    "lock_never_released": (
        "Deadlock",
        """
        __kernel void k(__global int *data) {
            if (get_local_id(0) == 0) {
                while (atomic_cmpxchg(&data[0], 0, 1) != 0) {}
                mem_fence(CLK_GLOBAL_MEM_FENCE);
        #ifndef MISTAKE
                atomic_xchg(&data[0], 0);
        #endif
            }
        }
        """,
    ),
}
"""For each mistake: the class of its finding, and the kernel."""
