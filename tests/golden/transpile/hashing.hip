// Compute with signed and unsigned integers that wrap around, and with bits.
//
// Written by Windtunnel from the kernel 'hashing': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ int wt_popc_u32(unsigned int x) {
    return __popc(x);
}

static __device__ __forceinline__ int wt_clz_u32(unsigned int x) {
    return __clz((int)x);
}

static __device__ __forceinline__ int wt_ffs_u32(unsigned int x) {
    return __ffs((int)x);
}

static __device__ __forceinline__ int wt_abs_i32(int a) {
    return a < 0 ? (int)(0u - (unsigned int)a) : a;
}

static __device__ __forceinline__ int wt_shift_right_i32(int a, int b) {
    return (unsigned int)b < 32 ? a >> b : a < 0 ? -1 : 0;
}

static __device__ __forceinline__ int wt_shift_left_i32(int a, int b) {
    // All bits are shifted out by as many as there are, or more.
    return (unsigned int)b < 32 ? (int)((unsigned int)a << b) : 0;
}

static __device__ __forceinline__ int wt_power_i32(int base, int exponent) {
    unsigned int product = 1u;
    for (int n = 0; n < exponent; ++n) product *= (unsigned int)base;
    return (int)product;
}

extern "C" __global__ void hashing(const int *x, unsigned int *out, int *signed_, int x_shape0) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x_shape0) {
        unsigned int h = (unsigned int)x[i] ^ 2166136261u;
        for (int turn = 0; turn < 4; ++turn) {
            h = (h ^ (h >> 15u)) * 16777619u;
            h += (unsigned int)turn << 3;
        }
        out[i] = h ^ ((unsigned int)wt_popc_u32(h) + (unsigned int)wt_clz_u32(h) + (unsigned int)wt_ffs_u32(h));
        int s = (unsigned int)x[i] * 1103515245u + 12345u;
        s = (unsigned int)s - ((unsigned int)s << 13) + (unsigned int)(s >> (i & 31)) * (0u - (unsigned int)s);
        signed_[i] = (int)((unsigned int)wt_abs_i32(s) + (unsigned int)wt_shift_right_i32(s, i) + (unsigned int)wt_shift_left_i32(s, i) + (unsigned int)wt_power_i32(x[i], 3) - (unsigned int)(int)((unsigned int)s * (unsigned int)s));
    }
}
