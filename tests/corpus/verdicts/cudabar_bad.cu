// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: DataRace
#include <cuda/barrier>
__global__ void k(const int *in, int *o) { __shared__ cuda::barrier<cuda::thread_scope_block> b; __shared__ int s[64]; if (threadIdx.x == 0) init(&b, 64); __syncthreads(); s[threadIdx.x] = in[threadIdx.x]; auto t = b.arrive(); o[threadIdx.x] = s[63 - threadIdx.x]; b.wait(std::move(t)); }
