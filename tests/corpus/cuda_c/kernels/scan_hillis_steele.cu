// launch: grid=1 block=64 data=arange:64:int32
// truth: clean
__global__ void scan(int *data) {
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = data[t];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        int left = t >= step ? held[t - step] : 0;
        __syncthreads();
        held[t] += left;
        __syncthreads();
    }
    data[t] = held[t];
}
