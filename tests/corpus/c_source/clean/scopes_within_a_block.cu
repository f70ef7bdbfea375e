// Work within a block is ordered by the scope of the block, and counted for the device.
#include <cuda/atomic>

__global__ void scopes_within_a_block(const int *in, int *out, int *all)
{
    __shared__ cuda::atomic<int, cuda::thread_scope_block> ready;
    __shared__ int message;
    cuda::atomic_ref<int, cuda::thread_scope_device> total(*all);
    int t = threadIdx.x;
    if (t == 0)
        ready.store(0);
    __syncthreads();
    if (t == 32) {
        message = in[blockIdx.x];
        ready.store(1, cuda::memory_order_release);
    }
    if (t == 0) {
        while (ready.load(cuda::memory_order_acquire) == 0)
            __nanosleep(20);
        out[blockIdx.x] = message;
    }
    total += in[blockIdx.x] % 2;
    int expected = 1000000;
    if (total.compare_exchange_strong(expected, 0))
        out[0] = -1;
}
