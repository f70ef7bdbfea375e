// Count each value in shared memory first; also compute the largest value, and the sum of all as floats.
//
// Written by Windtunnel from the kernel 'histogram': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    int r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static __device__ __forceinline__ float wt_atomic_max_f32(float *at, float value) {
    unsigned int seen = *(volatile unsigned int *)at, before;
    do {
        before = seen;
        seen = atomicCAS((unsigned int *)at, before, __float_as_uint(fmaxf(__uint_as_float(seen), value)));
    } while (seen != before);
    return __uint_as_float(seen);
}

extern "C" __global__ void histogram(const int *values, unsigned int *bins, int *largest, float *total, int values_shape0) {
    __shared__ unsigned int counts[16];
    int t = (int)threadIdx.x;
    if (t < 16) {
        counts[t] = 0u;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < values_shape0) {
        atomicAdd(&counts[wt_floor_mod_i32(values[i], 16)], 1u);
        atomicMax(&largest[0], values[i]);
        atomicAdd(&total[0], (float)values[i]);
        wt_atomic_max_f32(&total[1], (float)values[i]);
    }
    __syncthreads();
    if (t < 16) {
        atomicAdd(&bins[t], counts[t]);
    }
}
