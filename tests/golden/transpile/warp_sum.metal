// Compute sums of warps by shuffles, and votes of their threads.
//
// Written by Windtunnel from the kernel 'warp_sum': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

static inline ushort wt_source_lane(int wanted, uint own, uint lanes) {
    // The thread's own lane, if the wanted one does not exist.
    return (ushort)((uint)wanted < lanes ? (uint)wanted : own);
}

kernel void warp_sum(
    device const int *x [[buffer(0)]],
    device int *sums [[buffer(1)]],
    device uint *flags [[buffer(2)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]],
    uint wt_lane [[thread_index_in_simdgroup]],
    uint wt_lanes [[threads_per_simdgroup]]) {
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    int value = x[i];
    int distance = (int)wt_lanes / 2;
    while (distance > 0) {
        value = (uint)value + (uint)simd_shuffle(value, wt_source_lane((int)wt_lane + distance, wt_lane, wt_lanes));
        distance = distance / 2;
    }
    int first = simd_shuffle(value, (ushort)(0u & (wt_lanes - 1)));
    int other = simd_shuffle(i, wt_source_lane((int)wt_lane ^ 1, wt_lane, wt_lanes));
    sums[i] = (uint)first + ((uint)other - (uint)i);
    uint votes = (uint)(simd_vote::vote_t)simd_ballot(x[i] > 0);
    flags[i] = simd_any(x[i] > 5) ? votes : 0u;
    if ((int)wt_lane == 0) {
        flags[i] += 1u;
    }
}
