// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
__global__ void k(int *o) { int v = 0; for (int i = 0; i < 4; i++) { v += __shfl_xor_sync(0xffffffff, i, 1); } o[threadIdx.x] = v; }
