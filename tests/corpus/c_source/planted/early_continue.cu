// Updates behind a lock; an update of nothing leaves early.
__global__ void early_continue(int *lock, int *value, const int *change, int n)
{
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) != 0)
                continue;
            __threadfence();
            done = true;
            if (change[i] == 0)
                continue;
            *value += change[i];
            __threadfence();
            atomicExch(lock, 0);
        }
    }
}
