// The odd lanes exchange numbers among themselves.
__global__ void mask_without_itself(int *data)
{
    int lane = threadIdx.x & 31;
    if (lane & 1)
        data[threadIdx.x] = __shfl_xor_sync(0x55555555u, data[threadIdx.x], 2);
}
