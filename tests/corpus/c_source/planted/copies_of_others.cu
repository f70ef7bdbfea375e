// Every thread waits for its own copy, and reads its neighbour's.
#include <cuda_pipeline.h>

__global__ void copies_of_others(const int *in, int *out)
{
    __shared__ int held[64];
    unsigned t = threadIdx.x;
    __pipeline_memcpy_async(held + t, in + blockIdx.x * 64 + t, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[blockIdx.x * 64 + t] = held[(t + 1) % 64] - held[t];
}
