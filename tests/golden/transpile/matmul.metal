// Compute one tile of c per block, from tiles of a and b in shared memory.
//
// Written by Windtunnel from the kernel 'matmul': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void matmul(
    device const float *a [[buffer(0)]],
    device const float *b [[buffer(1)]],
    device float *c [[buffer(2)]],
    constant int &a_shape0 [[buffer(3)]],
    constant int &a_shape1 [[buffer(4)]],
    constant int &b_shape0 [[buffer(5)]],
    constant int &b_shape1 [[buffer(6)]],
    constant int &c_shape0 [[buffer(7)]],
    constant int &c_shape1 [[buffer(8)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    threadgroup float left[8 * 8];
    threadgroup float right[8 * 8];
    int x = (int)threadIdx.x;
    int y = (int)threadIdx.y;
    int column = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x;
    int row = (int)blockIdx.y * (int)blockDim.y + (int)threadIdx.y;
    float total = 0.0f;
    for (int first = 0; first < a_shape1; first += 8) {
        left[y * 8 + x] = row < a_shape0 && first + x < a_shape1 ? a[row * a_shape1 + (first + x)] : 0.0f;
        right[y * 8 + x] = first + y < b_shape0 && column < b_shape1 ? b[(first + y) * b_shape1 + column] : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
        for (int k = 0; k < 8; ++k) {
            total += left[y * 8 + k] * right[k * 8 + x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    }
    if (row < c_shape0 && column < c_shape1) {
        c[row * c_shape1 + column] = total;
    }
}
