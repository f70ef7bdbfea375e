// check: --grid 2 --block 32 --arg d=random:64 --arg o=zeros:64
// verdict: clean
#include <cooperative_groups.h>
__global__ void k(int *d, int *o) { auto g = cooperative_groups::this_grid(); int i = g.thread_rank(); d[i] *= 2; g.sync(); o[i] = d[63 - i]; }
