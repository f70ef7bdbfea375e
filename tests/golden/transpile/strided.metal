// Process the elements of a thread with a constant stride.
//
// Written by Windtunnel from the kernel 'strided': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void strided(
    device const float *x [[buffer(0)]],
    device float *out [[buffer(1)]],
    constant int &x_shape0 [[buffer(2)]],
    constant float &scale [[buffer(3)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]],
    uint3 gridDim [[threadgroups_per_grid]]) {
    int start = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    for (int i = start; i < x_shape0; i += (int)gridDim.x * (int)blockDim.x) {
        out[i] = fmax(x[i], 0.0f) * scale - fmin(x[i], -1.0f);
    }
}
