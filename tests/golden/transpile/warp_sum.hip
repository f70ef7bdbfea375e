// Compute sums of warps by shuffles, and votes of their threads.
//
// Written by Windtunnel from the kernel 'warp_sum': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

static __device__ __forceinline__ int wt_lane_i32() {
    return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % warpSize;
}

extern "C" __global__ void warp_sum(const int *x, int *sums, unsigned int *flags) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = x[i];
    int distance = warpSize / 2;
    while (distance > 0) {
        value = (unsigned int)value + (unsigned int)__shfl_down(value, distance);
        distance = distance / 2;
    }
    int first = __shfl(value, 0);
    int other = __shfl_xor(i, 1);
    sums[i] = (int)((unsigned int)first + ((unsigned int)other - (unsigned int)i));
    unsigned int votes = (unsigned int)__ballot(x[i] > 0);
    flags[i] = __any(x[i] > 5) != 0 ? votes : 0u;
    if (wt_lane_i32() == 0) {
        flags[i] = flags[i] + 1u;
    }
}
