// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:1 --arg n=20
// verdict: UninitializedRead or BarrierDivergence
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x; if (i >= n) return;
  int v = in[i]; for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
  if (i == 0) *o = v; }
