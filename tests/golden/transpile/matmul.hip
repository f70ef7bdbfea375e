// Compute one tile of c per block, from tiles of a and b in shared memory.
//
// Written by Windtunnel from the kernel 'matmul': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int a_shape0, int a_shape1, int b_shape0, int b_shape1, int c_shape0, int c_shape1) {
    __shared__ float left[8 * 8];
    __shared__ float right[8 * 8];
    int x = (int)threadIdx.x;
    int y = (int)threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    float total = 0.0f;
    for (int first = 0; first < a_shape1; first += 8) {
        left[y * 8 + x] = row < a_shape0 && first + x < a_shape1 ? a[row * a_shape1 + (first + x)] : 0.0f;
        right[y * 8 + x] = first + y < b_shape0 && column < b_shape1 ? b[(first + y) * b_shape1 + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            total += left[y * 8 + k] * right[k * 8 + x];
        }
        __syncthreads();
    }
    if (row < c_shape0 && column < c_shape1) {
        c[row * c_shape1 + column] = total;
    }
}
