// All blocks meet half-way, counted by their first threads.
__global__ void arrive_and_wait(int *data, unsigned *arrived)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    atomicExch(&data[i], i);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x + 1)
            ;
        __threadfence();
    }
    __syncthreads();
    int other = atomicAdd(&data[n - 1 - i], 0);
    (void)other;
}
