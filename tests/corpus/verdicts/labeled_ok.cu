// check: --grid 1 --block 64 --arg in=random:64 --arg h=zeros:4
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *h) { int b = in[threadIdx.x] & 3; auto a = cg::coalesced_threads(); auto g = cg::labeled_partition(a, b);
  if (g.thread_rank() == 0) atomicAdd(&h[b], g.size()); g.sync(); }
