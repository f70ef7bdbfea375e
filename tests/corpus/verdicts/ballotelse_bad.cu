// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: BarrierDivergence
__global__ void k(int *o) { unsigned m; if (threadIdx.x & 1) m = __ballot_sync(0xffffffff, threadIdx.x > 3); else m = 7; o[threadIdx.x] = m; }
