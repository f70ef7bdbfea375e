// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: BarrierDivergence or UninitializedRead
__global__ void k(int *o) { int v = threadIdx.x; 
  if (threadIdx.x < 16) { v += __shfl_down_sync(0xffffffff, v, 8); o[threadIdx.x] = v; } }
