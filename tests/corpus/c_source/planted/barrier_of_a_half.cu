// Differences between the halves of a block.
__global__ void barrier_of_a_half(int *data)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = data[blockIdx.x * 64 + t];
    if (t < 32) {
        __syncthreads();
        data[blockIdx.x * 64 + t] = s[t] - s[t + 32];
    }
}
