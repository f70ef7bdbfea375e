// launch: grid=1 block=64 data=arange:64:int32
// truth: DataRace
__global__ void scan(int *data) {
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = data[t];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        if (t >= step) held[t] += held[t - step];
        __syncthreads();
    }
    data[t] = held[t];
}
