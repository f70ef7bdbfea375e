// Reverses each block's numbers. The array was sized for blocks of 64.
#define MAX_THREADS 64

__global__ void block_of_another_size(int *data)
{
    __shared__ int held[MAX_THREADS];
    unsigned first = blockIdx.x * blockDim.x;
    held[threadIdx.x] = data[first + threadIdx.x];
    __syncthreads();
    data[first + threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}
