// launch: grid=4 block=64 in=arange:256:uint32 bins=zeros:16:uint32
// truth: clean
__global__ void histogram(const unsigned *in, unsigned *bins) {
    __shared__ unsigned held[16];
    if (threadIdx.x < 16) held[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&held[in[blockIdx.x * blockDim.x + threadIdx.x] * 7u % 16u], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(bins + threadIdx.x, held[threadIdx.x]);
}
