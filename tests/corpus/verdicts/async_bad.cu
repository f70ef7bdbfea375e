// check: --grid 1 --block 32 --arg in=random:64 --arg out=zeros:32
// verdict: DataRace
#include <cuda_pipeline.h>
__global__ void a(const int *in, int *out) {
  __shared__ int s[2][32];
  for (int k = 0; k < 2; k++) { __pipeline_memcpy_async(&s[k][threadIdx.x], &in[k * 32 + threadIdx.x], 4); __pipeline_commit(); }
  __pipeline_wait_prior(1);
  __syncthreads(); out[threadIdx.x] = s[0][31 - threadIdx.x] + s[1][31 - threadIdx.x];
}
