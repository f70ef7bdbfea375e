// Compute one step of heat flow; the edge keeps its temperature.
//
// Written by Windtunnel from the kernel 'stencil': HIP C++.
// Compile with -ffp-contract=off: a product and a sum must not become one operation.

#include <hip/hip_runtime.h>
#pragma clang fp contract(off)

extern "C" __global__ void stencil(const float *field, float *out, int field_shape0, int field_shape1, int out_shape0, int out_shape1) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int height = field_shape0;
    int width = field_shape1;
    if (x >= width || y >= height) {
        return;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * out_shape1 + x] = field[y * field_shape1 + x];
        return;
    }
    float around = field[(y - 1) * field_shape1 + x] + field[(y + 1) * field_shape1 + x] + field[y * field_shape1 + (x - 1)] + field[y * field_shape1 + (x + 1)];
    out[y * out_shape1 + x] = field[y * field_shape1 + x] + 0.1f * (around - 4.0f * field[y * field_shape1 + x]);
}
