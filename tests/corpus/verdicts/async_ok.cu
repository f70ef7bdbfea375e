// check: --grid 1 --block 32 --arg in=random:32 --arg out=zeros:32
// verdict: clean
#include <cuda_pipeline.h>
__global__ void a(const int *in, int *out) {
  __shared__ int s[32];
  __pipeline_memcpy_async(&s[threadIdx.x], &in[threadIdx.x], 4); __pipeline_commit(); __pipeline_wait_prior(0);
  __syncthreads(); out[threadIdx.x] = s[31 - threadIdx.x];
}
