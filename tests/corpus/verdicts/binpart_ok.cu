// check: --grid 1 --block 32 --arg in=random:32 --arg o=zeros:32
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) { auto t = cg::tiled_partition<32>(cg::this_thread_block()); auto g = cg::binary_partition(t, in[threadIdx.x] & 1);
  if (in[threadIdx.x] & 1) { g.sync(); o[threadIdx.x] = g.size(); } else o[threadIdx.x] = g.shfl(in[threadIdx.x], 0); }
