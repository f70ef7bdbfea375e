// The last block that arrives adds up the sums of all blocks.
__device__ unsigned int arrived = 0;

__global__ void last_block_total(const int *in, int *sums, int *total)
{
    __shared__ bool last;
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    if (t == 0) {
        int sum = 0;
        for (int j = 0; j < 64; ++j)
            sum += held[j];
        sums[blockIdx.x] = sum;
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        int sum = 0;
        for (int b = 0; b < gridDim.x; ++b)
            sum += sums[b];
        *total = sum;
    }
}
