// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:32 --arg n=20
// verdict: clean
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x; if (i >= n) return;
  int c = __any_sync(0xffffffff, in[i] > 40); __syncwarp(); o[i] = c; }
