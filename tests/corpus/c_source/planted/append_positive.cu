// Appends the positive numbers to a list, one reservation a block. The order within the list does not matter.
__global__ void append_positive(const int *in, int *list, int *length, int n)
{
    __shared__ int taken, base;
    if (threadIdx.x == 0)
        taken = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, place = -1;
    if (i < n && in[i] > 0)
        place = atomicAdd(&taken, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        base = *length;
    __syncthreads();
    if (place >= 0)
        list[base + place] = in[i];
}
