// check: --grid 1 --block 96 --arg in=random:96 --arg o=zeros:1
// verdict: clean
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) { __shared__ int part[3]; auto b = cg::this_thread_block(); auto w = cg::tiled_partition<32>(b); int s = cg::reduce(w, in[b.thread_rank()], cg::plus<int>()); if (w.thread_rank() == 0) part[w.meta_group_rank()] = s; b.sync(); if (b.thread_rank() == 0) *o = part[0] + part[1] + part[2]; }
