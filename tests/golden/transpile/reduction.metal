// Sum the elements of each block in a tree.
//
// Written by Windtunnel from the kernel 'reduction': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void reduction(
    device const int *x [[buffer(0)]],
    device int *out [[buffer(1)]],
    constant int &x_shape0 [[buffer(2)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    threadgroup int part[256];
    int t = (int)threadIdx.x;
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    part[t] = i < x_shape0 ? x[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    int stride = (int)blockDim.x / 2;
    while (stride > 0) {
        if (t < stride) {
            part[t] = (uint)part[t] + (uint)part[t + stride];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        stride = stride / 2;
    }
    if (t == 0) {
        out[(int)blockIdx.x] = part[0];
    }
}
