// Two blocks pass a number to and fro.
__device__ void pass(int *turn, int own, int next, int *value)
{
    while (atomicAdd(turn, 0) != own)
        ;
    __threadfence();
    *value += own;
    __threadfence();
    atomicExch(turn, next);
}

__global__ void ping_pong(int *turn, int *value, int rounds)
{
    if (threadIdx.x != 0)
        return;
    for (int r = 0; r < rounds; ++r)
        pass(turn, blockIdx.x + 1, 2 - blockIdx.x, value);
}
