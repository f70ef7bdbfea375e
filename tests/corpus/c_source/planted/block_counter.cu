// How many numbers of all blocks are above a threshold.
__global__ void block_counter(const float *in, int *above, float threshold, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        if (in[i] >= threshold)
            atomicAdd_block(above, 1);
}
