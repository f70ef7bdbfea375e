// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: BarrierDivergence or UninitializedRead
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) { auto t = cg::tiled_partition<8>(cg::this_thread_block()); int v = in[threadIdx.x];
  if (t.thread_rank() < 6) { for (int d = 4; d; d >>= 1) v += t.shfl_xor(v, d); } o[threadIdx.x] = v; }
