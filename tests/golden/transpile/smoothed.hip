// Compute a one-dimensional stencil without a tile.
//
// Written by Windtunnel from the kernel 'smoothed': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void smoothed(const float *x, float *out, int x_shape0) {
    int x_1 = (int)(blockIdx.x * blockDim.x + threadIdx.x) + 2;
    if (x_1 < x_shape0 - 2) {
        float near = x[x_1 - 1] + x[x_1 + 1];
        out[x_1] = 0.5f * x[x_1] + 0.25f * near - 0.0625f * (x[x_1 - 2] + x[x_1 + 2]);
    }
}
