// launch: grid=1 block=64 in=arange:64:int32 bins=zeros:4:int32
// truth: DataRace
__global__ void cleared_late(const int *in, int *bins) {
    __shared__ int held[4];
    if (threadIdx.x < 4) held[threadIdx.x] = 0;
    atomicAdd(&held[in[threadIdx.x] % 4], 1);
    __syncthreads();
    if (threadIdx.x < 4) bins[threadIdx.x] = held[threadIdx.x];
}
