// A Gaussian blur of rows and then of columns, and the mean of the result.
#include <cuda_runtime.h>
#include "clamp.cuh"

#define RADIUS 2
#define TILE 32

__constant__ float weights[RADIUS + 1] = {0.375f, 0.25f, 0.0625f};

__global__ void blur_rows(const float *in, float *out, int width, int height)
{
    __shared__ float tile[TILE + 2 * RADIUS];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y;
    for (int i = threadIdx.x; i < TILE + 2 * RADIUS; i += blockDim.x) {
        int from = clamped(int(blockIdx.x * TILE) + i - RADIUS, 0, width - 1);
        tile[i] = in[y * width + from];
    }
    __syncthreads();
    if (x >= width)
        return;
    float sum = weights[0] * tile[threadIdx.x + RADIUS];
    for (int r = 1; r <= RADIUS; ++r)
        sum += weights[r] * (tile[threadIdx.x + RADIUS - r] + tile[threadIdx.x + RADIUS + r]);
    out[y * width + x] = sum;
}

__global__ void blur_columns(const float *in, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= width)
        return;
    for (int y = 0; y < height; ++y) {
        float sum = weights[0] * in[y * width + x];
        for (int r = 1; r <= RADIUS; ++r)
            sum += weights[r] * (in[clamped(y - r, 0, height - 1) * width + x] + in[clamped(y + r, 0, height - 1) * width + x]);
        out[y * width + x] = sum;
    }
}

__global__ void mean(const float *in, float *result, int n)
{
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, sum / n);
}
