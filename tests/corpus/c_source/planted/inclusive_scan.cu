// Inclusive prefix sums of each block's numbers (Hillis and Steele).
__global__ void inclusive_scan(int *data)
{
    extern __shared__ int held[];
    int t = threadIdx.x;
    held[t] = data[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset <<= 1) {
        int add = t >= offset ? held[t - offset] : 0;
        held[t] += add;
        __syncthreads();
    }
    data[blockIdx.x * blockDim.x + t] = held[t];
}
