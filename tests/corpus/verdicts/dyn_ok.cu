// check: --grid 1 --block 32 --shared-bytes 128 --arg o=zeros:32
// verdict: clean
__global__ void k(int *o) { extern __shared__ int s[]; s[threadIdx.x] = threadIdx.x; __syncthreads(); o[threadIdx.x] = s[31 - threadIdx.x]; }
