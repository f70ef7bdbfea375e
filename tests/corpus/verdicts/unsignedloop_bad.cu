// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:32
// verdict: OutOfBounds or Deadlock
__global__ void k(const int *in, int *o) { int s = 0; for (unsigned i = threadIdx.x; i >= 0; i--) s += in[i]; o[threadIdx.x] = s; }
