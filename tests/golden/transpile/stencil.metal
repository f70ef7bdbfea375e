// Compute one step of heat flow; the edge keeps its temperature.
//
// Written by Windtunnel from the kernel 'stencil': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void stencil(
    device const float *field [[buffer(0)]],
    device float *out [[buffer(1)]],
    constant int &field_shape0 [[buffer(2)]],
    constant int &field_shape1 [[buffer(3)]],
    constant int &out_shape0 [[buffer(4)]],
    constant int &out_shape1 [[buffer(5)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int x = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    int y = (int)blockIdx.y * (int)blockDim.y + (int)threadIdx.y;
    int height = field_shape0;
    int width = field_shape1;
    if (x >= width || y >= height) {
        return;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * out_shape1 + x] = field[y * field_shape1 + x];
        return;
    }
    float around = field[(y - 1) * field_shape1 + x] + field[(y + 1) * field_shape1 + x] + field[y * field_shape1 + (x - 1)] + field[y * field_shape1 + (x + 1)];
    out[y * out_shape1 + x] = field[y * field_shape1 + x] + 0.1f * (around - 4.0f * field[y * field_shape1 + x]);
}
