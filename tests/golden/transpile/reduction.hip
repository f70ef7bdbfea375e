// Sum the elements of each block in a tree.
//
// Written by Windtunnel from the kernel 'reduction': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void reduction(const int *x, int *out, int x_shape0) {
    __shared__ int part[256];
    int t = (int)threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[t] = i < x_shape0 ? x[i] : 0;
    __syncthreads();
    int stride = (int)blockDim.x / 2;
    while (stride > 0) {
        if (t < stride) {
            part[t] = (int)((unsigned int)part[t] + (unsigned int)part[t + stride]);
        }
        __syncthreads();
        stride = stride / 2;
    }
    if (t == 0) {
        out[(int)blockIdx.x] = part[0];
    }
}
