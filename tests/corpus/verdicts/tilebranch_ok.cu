// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) {
  __shared__ int s[64]; auto b = cg::this_thread_block(); cg::thread_group g = cg::tiled_partition(b, 16);
  int i = b.thread_rank(); s[i] = in[i];
  if (i / 16 % 2 == 0) { g.sync(); o[i] = s[i ^ 15]; } else { o[i] = s[i]; }
}
