// Transfers between accounts, each behind a lock.
__device__ void lock(int *l)
{
    while (atomicCAS(l, 0, 1) != 0)
        ;
    __threadfence();
}

__device__ void unlock(int *l)
{
    __threadfence();
    atomicExch(l, 0);
}

__global__ void bank_transfer(int *balance, int *locks, const int *from, const int *to)
{
    int t = blockIdx.x;
    if (threadIdx.x != 0)
        return;
    int a = from[t], b = to[t];
    lock(&locks[a]);
    lock(&locks[b]);
    balance[a] -= 1;
    balance[b] += 1;
    unlock(&locks[b]);
    unlock(&locks[a]);
}
