// Compute y = a x + y, one element per thread.
//
// The result is rounded twice: after the product and after the sum.
//
// Written by Windtunnel from the kernel 'saxpy': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void saxpy(const float *x, float *y, int n, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}
