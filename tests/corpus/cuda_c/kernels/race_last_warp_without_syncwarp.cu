// launch: grid=1 block=32 in=arange:64:int32 out=zeros:1:int32
// truth: DataRace
__global__ void last_warp(const int *in, int *out) {
    __shared__ int held[64];
    int t = threadIdx.x;
    held[t] = in[t];
    held[t + 32] = in[t + 32];
    for (int step = 32; step > 0; step /= 2)
        if (t < step) held[t] += held[t + step];
    if (t == 0) *out = held[0];
}
