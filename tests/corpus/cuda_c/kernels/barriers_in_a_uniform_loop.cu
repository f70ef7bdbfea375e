// launch: grid=2 block=64 data=arange:128:int32 rounds=5
// truth: clean
__global__ void uniform(int *data, int rounds) {
    __shared__ int held[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    held[t] = data[i];
    for (int k = 0; k < rounds; ++k) {
        __syncthreads();
        int next = held[(t + 1) % 64];
        __syncthreads();
        held[t] = next + 1;
    }
    data[i] = held[t];
}
