// A total over all blocks, by an atomic object.
#include <cuda/atomic>

__global__ void scope_of_a_block(const int *in, int *total)
{
    cuda::atomic_ref<int, cuda::thread_scope_block> sum(*total);
    sum.fetch_add(in[blockIdx.x * blockDim.x + threadIdx.x], cuda::memory_order_relaxed);
}
