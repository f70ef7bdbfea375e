// Each block sorts its numbers by odd-even transposition in dynamic shared memory.
__device__ void order(float &a, float &b)
{
    if (a > b) {
        float c = a;
        a = b;
        b = c;
    }
}

__global__ void dynamic_shared(float *data)
{
    extern __shared__ float s[];
    const int t = threadIdx.x, n = 2 * blockDim.x;
    float *own = data + blockIdx.x * n;
    s[2 * t] = own[2 * t];
    s[2 * t + 1] = own[2 * t + 1];
    for (int round = 0; round < n; ++round) {
        __syncthreads();
        int first = 2 * t + (round & 1);
        if (first + 1 < n)
            order(s[first], s[first + 1]);
    }
    __syncthreads();
    own[2 * t] = s[2 * t];
    own[2 * t + 1] = s[2 * t + 1];
}
