// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:2 --arg n=48
// verdict: clean
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x; unsigned m = __ballot_sync(~0u, i < n); if (i < n) { int v = in[i]; int c = __popc(m); for (int d = 16; d; d >>= 1) { int w = __shfl_down_sync(m, v, d); if ((i & 31) + d < c) v += w; } if ((i & 31) == 0) o[i / 32] = v; } }
