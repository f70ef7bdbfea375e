// Compute a three-dimensional stencil in tiles; arrays read only at the own cell are not copied to the tile.
//
// Written by Windtunnel from the kernel 'diffused': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#pragma clang fp contract(off)

extern "C" __global__ void diffused(const float *heat, const __half *rate, float *out, int heat_shape0, int heat_shape1, int heat_shape2, int rate_shape0, int rate_shape1, int rate_shape2, int out_shape0, int out_shape1, int out_shape2, float dt) {
    __shared__ float heat_tile[6 * 8 * 12];
    for (int k = (int)threadIdx.z; k < 6; k += (int)blockDim.z) {
        for (int j = (int)threadIdx.y; j < 8; j += (int)blockDim.y) {
            for (int i = (int)threadIdx.x; i < 12; i += (int)blockDim.x) {
                int plane = (int)(blockIdx.z * blockDim.z) + k;
                int row = (int)(blockIdx.y * blockDim.y) + j;
                int column = (int)(blockIdx.x * blockDim.x) + i;
                if (column < heat_shape2 && row < heat_shape1 && plane < heat_shape0) {
                    heat_tile[(k * 8 + j) * 12 + i] = heat[(plane * heat_shape1 + row) * heat_shape2 + column];
                }
            }
        }
    }
    __syncthreads();
    int x = (int)(blockIdx.x * blockDim.x + threadIdx.x) + 2;
    int y = (int)(blockIdx.y * blockDim.y + threadIdx.y) + 2;
    int z = (int)(blockIdx.z * blockDim.z + threadIdx.z) + 2;
    int tx = (int)threadIdx.x + 2;
    int ty = (int)threadIdx.y + 2;
    int tz = (int)threadIdx.z + 2;
    if (x < heat_shape2 - 2 && y < heat_shape1 - 2 && z < heat_shape0 - 2) {
        float here = heat_tile[(tz * 8 + ty) * 12 + tx];
        float around = heat_tile[((tz - 1) * 8 + ty) * 12 + tx] + heat_tile[((tz + 1) * 8 + ty) * 12 + tx] + heat_tile[(tz * 8 + (ty - 1)) * 12 + tx] + heat_tile[(tz * 8 + (ty + 1)) * 12 + tx] + heat_tile[(tz * 8 + ty) * 12 + (tx - 1)] + heat_tile[(tz * 8 + ty) * 12 + (tx + 1)];
        float flow = __half2float(rate[(z * rate_shape1 + y) * rate_shape2 + x]) * (around - 6.0f * here);
        if (z % 2 == 0) {
            flow += 0.5f * (heat_tile[((tz + 2) * 8 + (ty - 1)) * 12 + tx] - heat_tile[((tz + 2) * 8 + ty) * 12 + tx]);
        }
        out[(z * out_shape1 + y) * out_shape2 + x] = out[(z * out_shape1 + y) * out_shape2 + x] + (here + dt * flow);
    }
}
