// Compute y = a x + y, one element per thread.
//
// The result is rounded twice: after the product and after the sum.
//
// Written by Windtunnel from the kernel 'saxpy': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void saxpy(
    device const float *x [[buffer(0)]],
    device float *y [[buffer(1)]],
    constant int &n [[buffer(2)]],
    constant float &a [[buffer(3)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    int i = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}
