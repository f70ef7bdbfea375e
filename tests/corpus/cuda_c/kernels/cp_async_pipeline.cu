// launch: grid=1 block=32 in=arange:128:float32 out=zeros:32:float32
// truth: clean
#include <cuda_pipeline.h>
__global__ void pipelined(const float *in, float *out) {
    __shared__ float held[2][32];
    int t = threadIdx.x;
    float sum = 0.0f;
    __pipeline_memcpy_async(&held[0][t], &in[t], sizeof(float));
    __pipeline_commit();
    for (int k = 0; k < 4; ++k) {
        if (k < 3) __pipeline_memcpy_async(&held[(k + 1) % 2][t], &in[(k + 1) * 32 + t], sizeof(float));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += held[k % 2][31 - t];
        __syncthreads();
    }
    out[t] = sum;
}
