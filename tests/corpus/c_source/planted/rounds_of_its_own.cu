// Each thread halves its number until it is odd; the block counts the rounds together.
__global__ void rounds_of_its_own(const int *in, int *out)
{
    __shared__ int rounds;
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (threadIdx.x == 0)
        rounds = 0;
    __syncthreads();
    while (v != 0 && v % 2 == 0) {
        v /= 2;
        atomicAdd(&rounds, 1);
        __syncthreads();
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = v + rounds;
}
