// The reader of a message waits with the weakest order.
#include <cuda/atomic>

__global__ void message_read_relaxed(float *message, int *raw, float *out)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(*raw);
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        message[t] = t * 0.5f;
        __syncthreads();
        if (t == 0)
            flag.store(1, cuda::std::memory_order_release);
    } else if (t == 0) {
        while (flag.load(cuda::std::memory_order_relaxed) != 1) {
        }
        out[0] = message[3];
    }
}
