// Compute a two-dimensional stencil in tiles.
//
// Written by Windtunnel from the kernel 'laplacian': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void laplacian(
    device const float *a [[buffer(0)]],
    device float *out [[buffer(1)]],
    constant int &a_shape0 [[buffer(2)]],
    constant int &a_shape1 [[buffer(3)]],
    constant int &out_shape0 [[buffer(4)]],
    constant int &out_shape1 [[buffer(5)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    threadgroup float a_tile[10 * 10];
    for (int j = (int)threadIdx.y; j < 10; j += (int)blockDim.y) {
        for (int i = (int)threadIdx.x; i < 10; i += (int)blockDim.x) {
            int row = (int)blockIdx.y * (int)blockDim.y + j;
            int column = (int)blockIdx.x * (int)blockDim.x + i;
            if (column < a_shape1 && row < a_shape0) {
                a_tile[j * 10 + i] = a[row * a_shape1 + column];
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    int x = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x + 1;
    int y = (int)blockIdx.y * (int)blockDim.y + (int)threadIdx.y + 1;
    int tx = (int)threadIdx.x + 1;
    int ty = (int)threadIdx.y + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a_tile[(ty - 1) * 10 + tx] + a_tile[(ty + 1) * 10 + tx] + a_tile[ty * 10 + (tx + 1)] + a_tile[ty * 10 + (tx - 1)] - 4.0f * a_tile[ty * 10 + tx];
    }
}
