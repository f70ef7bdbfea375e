// Count each value in shared memory first; also compute the largest value, and the sum of all as floats.
//
// Written by Windtunnel from the kernel 'histogram': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

static inline int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline float wt_atomic_add_device_f32(device float *at, float value) {
    device atomic_uint *word = (device atomic_uint *)at;
    uint seen = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &seen, as_type<uint>(as_type<float>(seen) + value), memory_order_relaxed, memory_order_relaxed)) {
    }
    return as_type<float>(seen);
}

static inline float wt_atomic_max_device_f32(device float *at, float value) {
    device atomic_uint *word = (device atomic_uint *)at;
    uint seen = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &seen, as_type<uint>(fmax(as_type<float>(seen), value)), memory_order_relaxed, memory_order_relaxed)) {
    }
    return as_type<float>(seen);
}

kernel void histogram(
    device const int *values [[buffer(0)]],
    device uint *bins [[buffer(1)]],
    device int *largest [[buffer(2)]],
    device float *total [[buffer(3)]],
    constant int &values_shape0 [[buffer(4)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    threadgroup uint counts[16];
    int t = (int)threadIdx.x;
    if (t < 16) {
        counts[t] = 0u;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    if (i < values_shape0) {
        atomic_fetch_add_explicit((threadgroup atomic_uint *)&counts[wt_floor_mod_i32(values[i], 16)], 1u, memory_order_relaxed);
        atomic_fetch_max_explicit((device atomic_int *)&largest[0], values[i], memory_order_relaxed);
        wt_atomic_add_device_f32(&total[0], (float)values[i]);
        wt_atomic_max_device_f32(&total[1], (float)values[i]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (t < 16) {
        atomic_fetch_add_explicit((device atomic_uint *)&bins[t], counts[t], memory_order_relaxed);
    }
}
