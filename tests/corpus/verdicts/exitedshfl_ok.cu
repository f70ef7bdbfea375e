// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:1 --arg n=20
// verdict: clean
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x;
  int v = i < n ? in[i] : 0; for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
  if (i == 0) *o = v; }
