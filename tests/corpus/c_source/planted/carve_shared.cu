// Keys and their counts share the dynamic shared memory of a block.
__global__ void carve_shared(const int *keys, int *most)
{
    extern __shared__ unsigned char pool[];
    int *held = reinterpret_cast<int *>(pool);
    unsigned short *count = reinterpret_cast<unsigned short *>(pool + blockDim.x * sizeof(short));
    const int t = threadIdx.x;
    held[t] = keys[blockIdx.x * blockDim.x + t];
    count[t] = 0;
    __syncthreads();
    for (int j = 0; j < blockDim.x; ++j)
        count[t] += held[j] == held[t];
    most[blockIdx.x * blockDim.x + t] = count[t];
}
