// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64
// verdict: DataRace
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void k(const int *in, int *o) { __shared__ int s[64]; auto b = cg::this_thread_block(); cg::memcpy_async(b, s, in, sizeof(int) * 64); o[threadIdx.x] = s[63 - threadIdx.x]; cg::wait(b); }
