// Sum of each block's part of an array, by a tree in shared memory.
#include <cuda_runtime.h>

__global__ void block_sum(const float *in, float *sums, int n)
{
    __shared__ float partial[128];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (t < stride)
            partial[t] += partial[t + stride];
    }
    if (t == 0)
        sums[blockIdx.x] = partial[0];
}
