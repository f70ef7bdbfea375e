// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: BarrierDivergence
__global__ void k(int *o) { int v = 0; for (int i = 0; i < (int)(threadIdx.x & 3) + 1; i++) { v += __shfl_xor_sync(0xffffffff, i, 1); } o[threadIdx.x] = v; }
