// Lanes 0 to 15 take the number of a lane.
__global__ void shuffle_from_outside(int *data, int source)
{
    int t = threadIdx.x, v = data[t];
    if (t < 16)
        data[t] = __shfl_sync(0x0000ffff, v, source + 16);
}
