// check: --grid 1 --block 48 --arg in=random:48 --arg o=zeros:2
// verdict: clean
__global__ void k(const int *in, int *o) { int i = threadIdx.x, n = 48;
  unsigned m = __ballot_sync(0xffffffff, i < n); int v = in[i];
  for (int d = 16; d > 0; d >>= 1) { int w = __shfl_down_sync(m, v, d); if ((i & 31) + d < __popc(m)) v += w; }
  if ((i & 31) == 0) o[i / 32] = v; }
