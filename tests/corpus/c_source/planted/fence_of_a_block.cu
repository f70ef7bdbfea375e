// A message behind a fence and a relaxed flag.
#include <cuda/atomic>

__global__ void fence_of_a_block(int *message, int *raw, int *out)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(*raw);
    if (threadIdx.x > 0)
        return;
    if (blockIdx.x == 0) {
        *message = 5;
        cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_block);
        flag.store(1, cuda::memory_order_relaxed);
    } else {
        flag.wait(0, cuda::memory_order_acquire);
        *out = *message;
    }
}
