// Two stages of copies: one is used while the next arrives.
#include <cuda_pipeline_primitives.h>

__global__ void two_stages(const int *in, int *out, int parts)
{
    __shared__ int stage[2][32];
    int t = threadIdx.x, sum = 0;
    __pipeline_memcpy_async(&stage[0][t], &in[t], sizeof(int));
    __pipeline_commit();
    for (int part = 0; part < parts; ++part) {
        if (part + 1 < parts)
            __pipeline_memcpy_async(&stage[(part + 1) & 1][t], &in[(part + 1) * 32 + t], sizeof(int));
        __pipeline_commit();
        __pipeline_wait_prior(2);
        __syncthreads();
        sum += stage[part & 1][31 - t] * (part + 1);
        __syncthreads();
    }
    out[t] = sum;
}
