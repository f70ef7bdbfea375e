// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:2 --arg n=48
// verdict: BarrierDivergence
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x; if (i < n) { int v = in[i]; int c = min(32, n - (i & ~31)); for (int d = 16; d; d >>= 1) { int w = __shfl_down_sync(~0u, v, d); if ((i & 31) + d < c) v += w; } if ((i & 31) == 0) o[i / 32] = v; } }
