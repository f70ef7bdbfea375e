// Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile.
//
// Written by Windtunnel from the kernel 'diffused': the Metal shading language.
// Compile with -fno-fast-math -ffp-contract=off: in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation.

#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(off)

kernel void diffused(
    device const float *heat [[buffer(0)]],
    device const half *rate [[buffer(1)]],
    device float *out [[buffer(2)]],
    constant int &heat_shape0 [[buffer(3)]],
    constant int &heat_shape1 [[buffer(4)]],
    constant int &heat_shape2 [[buffer(5)]],
    constant int &rate_shape0 [[buffer(6)]],
    constant int &rate_shape1 [[buffer(7)]],
    constant int &rate_shape2 [[buffer(8)]],
    constant int &out_shape0 [[buffer(9)]],
    constant int &out_shape1 [[buffer(10)]],
    constant int &out_shape2 [[buffer(11)]],
    constant float &dt [[buffer(12)]],
    uint3 threadIdx [[thread_position_in_threadgroup]],
    uint3 blockIdx [[threadgroup_position_in_grid]],
    uint3 blockDim [[threads_per_threadgroup]]) {
    threadgroup float heat_tile[6 * 8 * 12];
    for (int k = (int)threadIdx.z; k < 6; k += (int)blockDim.z) {
        for (int j = (int)threadIdx.y; j < 8; j += (int)blockDim.y) {
            for (int i = (int)threadIdx.x; i < 12; i += (int)blockDim.x) {
                int plane = (int)blockIdx.z * (int)blockDim.z + k;
                int row = (int)blockIdx.y * (int)blockDim.y + j;
                int column = (int)blockIdx.x * (int)blockDim.x + i;
                if (column < heat_shape2 && row < heat_shape1 && plane < heat_shape0) {
                    heat_tile[(k * 8 + j) * 12 + i] = heat[(plane * heat_shape1 + row) * heat_shape2 + column];
                }
            }
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    int x = (int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x + 2;
    int y = (int)blockIdx.y * (int)blockDim.y + (int)threadIdx.y + 2;
    int z = (int)blockIdx.z * (int)blockDim.z + (int)threadIdx.z + 2;
    int tx = (int)threadIdx.x + 2;
    int ty = (int)threadIdx.y + 2;
    int tz = (int)threadIdx.z + 2;
    if (x < heat_shape2 - 2 && y < heat_shape1 - 2 && z < heat_shape0 - 2) {
        float here = heat_tile[(tz * 8 + ty) * 12 + tx];
        float around = heat_tile[((tz - 1) * 8 + ty) * 12 + tx] + heat_tile[((tz + 1) * 8 + ty) * 12 + tx] + heat_tile[(tz * 8 + (ty - 1)) * 12 + tx] + heat_tile[(tz * 8 + (ty + 1)) * 12 + tx] + heat_tile[(tz * 8 + ty) * 12 + (tx - 1)] + heat_tile[(tz * 8 + ty) * 12 + (tx + 1)];
        float flow = (float)rate[(z * rate_shape1 + y) * rate_shape2 + x] * (around - 6.0f * here);
        if (z % 2 == 0) {
            flow += 0.5f * (heat_tile[((tz + 2) * 8 + (ty - 1)) * 12 + tx] - heat_tile[((tz + 2) * 8 + ty) * 12 + tx]);
        }
        out[(z * out_shape1 + y) * out_shape2 + x] += here + dt * flow;
    }
}
