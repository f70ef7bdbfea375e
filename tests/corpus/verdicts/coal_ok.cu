// check: --grid 1 --block 64 --arg in=random:64 --arg c=zeros:1 --arg o=zeros:64
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ int inc(int *c) { auto g = cg::coalesced_threads(); int p; if (g.thread_rank() == 0) p = atomicAdd(c, g.size()); return g.thread_rank() + g.shfl(p, 0); }
__global__ void k(const int *in, int *c, int *o) { int i = threadIdx.x; if (in[i] & 1) o[inc(c)] = in[i]; }
