// launch: grid=2 block=64 in=arange:128:int32 out=zeros:8:int32
// truth: clean
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void tiles(const int *in, int *out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    int value = in[blockIdx.x * blockDim.x + block.thread_rank()];
    for (int step = tile.size() / 2; step > 0; step /= 2) value += tile.shfl_down(value, step);
    if (tile.thread_rank() == 0) out[blockIdx.x * 4 + threadIdx.x / 16] = value;
    block.sync();
}
