// Barriers that count, and leave a loop together.
__global__ void counted_barriers(const int *in, int *out, int limit)
{
    int t = threadIdx.x, v = in[blockIdx.x * blockDim.x + t], rounds = 0;
    while (__syncthreads_or(v > limit)) {
        if (v > limit)
            v = v / 2 + 1;
        ++rounds;
    }
    int many = __syncthreads_count(v == limit);
    int all = __syncthreads_and(v <= limit);
    out[blockIdx.x * blockDim.x + t] = v + 100 * rounds + 10000 * many + 1000000 * all;
}
