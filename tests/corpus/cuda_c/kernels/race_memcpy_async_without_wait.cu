// launch: grid=1 block=32 in=arange:32:float32 out=zeros:32:float32
// truth: DataRace
#include <cuda_pipeline.h>
__global__ void copied(const float *in, float *out) {
    __shared__ float held[32];
    __pipeline_memcpy_async(&held[threadIdx.x], &in[threadIdx.x], sizeof(float));
    __pipeline_commit();
    __syncthreads();
    out[threadIdx.x] = held[31 - threadIdx.x];
}
