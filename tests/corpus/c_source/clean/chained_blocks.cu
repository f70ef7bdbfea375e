// Prefix sums of all blocks in one launch: each block waits for the total of the one before.
__global__ void chained_blocks(const int *in, int *out, volatile int *totals, int *flags)
{
    __shared__ int before, s[32];
    int t = threadIdx.x, b = blockIdx.x;
    s[t] = in[b * 32 + t];
    __syncthreads();
    if (t == 0) {
        int sum = 0;
        for (int j = 0; j < 32; ++j)
            s[j] = sum += s[j];
        before = 0;
        if (b > 0) {
            while (atomicAdd(&flags[b - 1], 0) == 0) {
            }
            __threadfence();
            before = totals[b - 1];
        }
        totals[b] = before + sum;
        __threadfence();
        atomicExch(&flags[b], 1);
    }
    __syncthreads();
    out[b * 32 + t] = before + s[t];
}
