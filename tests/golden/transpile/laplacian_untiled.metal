// Compute the same stencil without a tile.
//
// Written by Windtunnel from the kernel 'laplacian_untiled': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void laplacian_untiled(
    device const float *a [[buffer(0)]],
    device float *out [[buffer(1)]],
    constant int &a_shape0 [[buffer(2)]],
    constant int &a_shape1 [[buffer(3)]],
    constant int &out_shape0 [[buffer(4)]],
    constant int &out_shape1 [[buffer(5)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int x = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x + 1;
    int y = (int)blockIdx.y * (int)blockDim.y + (int)threadIdx.y + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a[(y - 1) * a_shape1 + x] + a[(y + 1) * a_shape1 + x] + a[y * a_shape1 + (x + 1)] + a[y * a_shape1 + (x - 1)] - 4.0f * a[y * a_shape1 + x];
    }
}
