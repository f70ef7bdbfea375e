// check: --grid 1 --block 64 --arg o=zeros:64
// verdict: BarrierDivergence
__global__ void k(int *o) { int c = 0; if (threadIdx.x != 63) c = __syncthreads_or(threadIdx.x == 3); o[threadIdx.x] = c; }
