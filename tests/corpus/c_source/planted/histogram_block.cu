// Histogram of bytes: each block counts in shared memory, and adds its counts to the result.
#include <stdint.h>
constexpr int BINS = 32;

__global__ void histogram_block(const uint8_t *values, unsigned int *counts, unsigned n)
{
    __shared__ unsigned int local[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        local[b] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        ++local[values[i] % BINS];
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += blockDim.x)
        atomicAdd(counts + b, local[b]);
}
