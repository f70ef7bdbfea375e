// launch: grid=2 block=32 in=arange:64:float32 out=zeros:64:float32
// truth: clean
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void copied(const float *in, float *out) {
    __shared__ float held[32];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, held, in + blockIdx.x * 32, sizeof(float) * 32);
    cg::wait(block);
    out[blockIdx.x * 32 + threadIdx.x] = held[31 - threadIdx.x];
}
