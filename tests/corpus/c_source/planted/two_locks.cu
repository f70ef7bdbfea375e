// Two blocks take two locks.
__global__ void two_locks(int *locks, int *sum)
{
    if (threadIdx.x > 0)
        return;
    int first = blockIdx.x & 1, second = 1 - first;
    while (atomicExch(&locks[first], 1) == 1)
        ;
    atomicAdd(sum, 1);
    while (atomicExch(&locks[second], 1) == 1)
        ;
    atomicAdd(sum, 10);
    atomicExch(&locks[second], 0);
    atomicExch(&locks[first], 0);
}
