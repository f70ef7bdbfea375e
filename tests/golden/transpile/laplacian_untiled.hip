// Compute the same stencil without a tile.
//
// Written by Windtunnel from the kernel 'laplacian_untiled': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void laplacian_untiled(const float *a, float *out, int a_shape0, int a_shape1, int out_shape0, int out_shape1) {
    int x = (int)(blockIdx.x * blockDim.x + threadIdx.x) + 1;
    int y = (int)(blockIdx.y * blockDim.y + threadIdx.y) + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a[(y - 1) * a_shape1 + x] + a[(y + 1) * a_shape1 + x] + a[y * a_shape1 + (x + 1)] + a[y * a_shape1 + (x - 1)] - 4.0f * a[y * a_shape1 + x];
    }
}
