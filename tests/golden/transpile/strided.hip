// Process the elements of a thread with a constant stride.
//
// Written by Windtunnel from the kernel 'strided': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void strided(const float *x, float *out, int x_shape0, float scale) {
    int start = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = start; i < x_shape0; i += (int)(gridDim.x * blockDim.x)) {
        out[i] = fmaxf(x[i], 0.0f) * scale - fminf(x[i], -1.0f);
    }
}
