// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
__global__ void k(int *o) { int v = threadIdx.x; 
  if (threadIdx.x < 16) { v += __shfl_xor_sync(0xffff, v, 8); o[threadIdx.x] = v; } }
