// check: --grid 1 --block 64 --arg in=random:64 --arg h=zeros:8
// verdict: clean
__global__ void k(const int *in, int *h) { int b = in[threadIdx.x] & 7; if (b != 3) { unsigned p = __match_any_sync(__activemask(), b); if ((threadIdx.x & 31) == __ffs(p) - 1) atomicAdd(&h[b], __popc(p)); } }
