// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:4
// verdict: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ int sum(cg::thread_group g, int *s, int v) {
  int r = g.thread_rank();
  for (int i = g.size() / 2; i > 0; i /= 2) { s[r] = v; g.sync(); if (r < i) v += s[r + i]; g.sync(); }
  return v;
}
__global__ void k(const int *in, int *o) {
  __shared__ int s[64]; cg::thread_block b = cg::this_thread_block(); cg::thread_group g = cg::tiled_partition(b, 16);
  int v = sum(g, &s[b.thread_rank() / 16 * 16], in[b.thread_rank()]);
  if (g.thread_rank() == 0) o[b.thread_rank() / 16] = v;
}
