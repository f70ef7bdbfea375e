// Where the largest number of each thread's part is.
__device__ int argmax(const float *p, int n, float *best)
{
    int at;
    *best = 100.0f;
    for (int i = 0; i < n; ++i)
        if (p[i] > *best) {
            *best = p[i];
            at = i;
        }
    return at;
}

__global__ void argument_of_maximum(const float *in, int *at, float *best, int each)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    at[t] = argmax(in + t * each, each, best + t);
}
