// Count each value in shared memory first; also compute the largest value, and the sum of all as floats.
//
// Written by Windtunnel from the kernel 'histogram': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

static inline int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static inline float wt_atomic_add_global_f32(volatile __global float *at, float value) {
    uint seen = *((volatile __global uint *)at), before;
    do {
        before = seen;
        seen = atomic_cmpxchg((volatile __global uint *)at, before, as_uint(as_float(before) + value));
    } while (seen != before);
    return as_float(seen);
}

static inline float wt_atomic_max_global_f32(volatile __global float *at, float value) {
    uint seen = *((volatile __global uint *)at), before;
    do {
        before = seen;
        seen = atomic_cmpxchg((volatile __global uint *)at, before, as_uint(fmax(as_float(before), value)));
    } while (seen != before);
    return as_float(seen);
}

__kernel void histogram(__global const int *values, __global volatile uint *bins, __global volatile int *largest, __global volatile float *total, int values_shape0) {
    __local volatile uint counts[16];
    int t = (int)get_local_id(0);
    if (t < 16) {
        counts[t] = 0u;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i < values_shape0) {
        atomic_add(&counts[wt_floor_mod_i32(values[i], 16)], 1u);
        atomic_max(&largest[0], values[i]);
        wt_atomic_add_global_f32(&total[0], (float)values[i]);
        wt_atomic_max_global_f32(&total[1], (float)values[i]);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (t < 16) {
        atomic_add(&bins[t], counts[t]);
    }
}
