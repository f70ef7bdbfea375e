// A block copies its numbers together, and reverses them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

__global__ void group_copy(const int *in, int *out)
{
    __shared__ int held[64];
    cg::thread_block block = cg::this_thread_block();
    cg::memcpy_async(block, held, in + blockIdx.x * 64, sizeof(int) * 64);
    block.sync();
    out[blockIdx.x * 64 + threadIdx.x] = held[63 - threadIdx.x];
}
