// check: --grid 1 --block 64 --arg in=random:64 --arg h=zeros:4
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *h) { int v = in[threadIdx.x]; if (v > 10) { auto a = cg::coalesced_threads(); auto g = cg::labeled_partition(a, v & 3);
  int t = g.shfl(v, 0); if (g.thread_rank() == 0) atomicAdd(&h[v & 3], t); g.sync(); } else if (v > 5) atomicAdd(&h[0], 1); }
