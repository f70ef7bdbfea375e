// Compute a two-dimensional stencil in tiles.
//
// Written by Windtunnel from the kernel 'laplacian': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void laplacian(const float *a, float *out, int a_shape0, int a_shape1, int out_shape0, int out_shape1) {
    __shared__ float a_tile[10 * 10];
    for (int j = (int)threadIdx.y; j < 10; j += (int)blockDim.y) {
        for (int i = (int)threadIdx.x; i < 10; i += (int)blockDim.x) {
            int row = (int)(blockIdx.y * blockDim.y) + j;
            int column = (int)(blockIdx.x * blockDim.x) + i;
            if (column < a_shape1 && row < a_shape0) {
                a_tile[j * 10 + i] = a[row * a_shape1 + column];
            }
        }
    }
    __syncthreads();
    int x = (int)(blockIdx.x * blockDim.x + threadIdx.x) + 1;
    int y = (int)(blockIdx.y * blockDim.y + threadIdx.y) + 1;
    int tx = (int)threadIdx.x + 1;
    int ty = (int)threadIdx.y + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a_tile[(ty - 1) * 10 + tx] + a_tile[(ty + 1) * 10 + tx] + a_tile[ty * 10 + (tx + 1)] + a_tile[ty * 10 + (tx - 1)] - 4.0f * a_tile[ty * 10 + tx];
    }
}
