// launch: grid=1 block=128 in=arange:128:int32 out=zeros:1:int32
// truth: DataRace
__global__ void tree(const int *in, int *out) {
    __shared__ int held[128];
    int t = threadIdx.x;
    held[t] = in[t];
    __syncthreads();
    for (int step = 64; step > 0; step >>= 1)
        if (t < step) held[t] += held[t + step];
    if (t == 0) *out = held[0];
}
