// Block 0 sends a message to the others through a flag.
#include <cuda/atomic>

using flag_type = cuda::atomic<int, cuda::thread_scope_device>;

__global__ void message_relaxed(int *message, flag_type *flag, int *out)
{
    if (threadIdx.x != 0)
        return;
    if (blockIdx.x == 0) {
        message[0] = 7;
        flag->store(1, cuda::memory_order_relaxed);
    } else {
        while (flag->load(cuda::memory_order_acquire) == 0)
            ;
        out[blockIdx.x] = message[0];
    }
}
