// launch: grid=1 block=64 data=arange:64:int32
// truth: DataRace
__global__ void neighbour(int *data) {
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = data[t];
    __syncthreads();
    if (t < 63) held[t] = held[t + 1];
    __syncthreads();
    data[t] = held[t];
}
