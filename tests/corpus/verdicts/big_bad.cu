// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: refused
__global__ void k(int *o) { __shared__ int s[16000]; s[threadIdx.x] = threadIdx.x; __syncthreads(); o[threadIdx.x] = s[31 - threadIdx.x]; }
