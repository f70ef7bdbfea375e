// Compute a one-dimensional stencil without a tile.
//
// Written by Windtunnel from the kernel 'smoothed': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void smoothed(
    device const float *x [[buffer(0)]],
    device float *out [[buffer(1)]],
    constant int &x_shape0 [[buffer(2)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int x_1 = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x + 2;
    if (x_1 < x_shape0 - 2) {
        float near = x[x_1 - 1] + x[x_1 + 1];
        out[x_1] = 0.5f * x[x_1] + 0.25f * near - 0.0625f * (x[x_1 - 2] + x[x_1 + 2]);
    }
}
