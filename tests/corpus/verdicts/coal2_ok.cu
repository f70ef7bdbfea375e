// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: clean
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) { int i = threadIdx.x; 
  if (in[i] % 3 == 0) { auto g = cg::coalesced_threads(); int s = cg::reduce(g, in[i], cg::plus<int>()); g.sync(); o[i] = s; }
  else { auto g = cg::coalesced_threads(); g.sync(); o[i] = g.size(); } }
