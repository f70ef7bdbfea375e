// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: BarrierDivergence
__global__ void k(int *o) { unsigned m = 0xfffffffe; o[threadIdx.x] = __any_sync(m, threadIdx.x == 4); }
