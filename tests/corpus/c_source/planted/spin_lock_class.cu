// A list guarded by a lock of a class.
#include <cuda/atomic>

class Lock {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> taken;

public:
    __device__ explicit Lock(unsigned &word) : taken(word) {}
    __device__ bool try_lock()
    {
        unsigned free = 0;
        return taken.compare_exchange_strong(free, 1u, cuda::memory_order_acquire, cuda::memory_order_relaxed);
    }
    __device__ void unlock() { taken.store(0u, cuda::memory_order_relaxed); }
};

__global__ void spin_lock_class(unsigned *word, int *list, int *length)
{
    Lock lock(*word);
    bool done = false;
    while (!done) {
        if (lock.try_lock()) {
            list[*length] = blockIdx.x;
            *length += 1;
            lock.unlock();
            done = true;
        }
    }
}
