// Rows come to shared memory by asynchronous copies.
#include <cuda_pipeline.h>

__global__ void staged_rows(const float *in, float *out)
{
    __shared__ float row[128];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&row[4 * t], &in[blockIdx.x * 128 + 4 * t], 16);
    __pipeline_commit();
    __syncthreads();
    for (int k = 0; k < 4; ++k)
        out[blockIdx.x * 128 + 4 * t + k] = row[127 - 4 * t - k];
}
