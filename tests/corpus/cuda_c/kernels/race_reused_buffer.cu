// launch: grid=1 block=64 in=arange:128:int32 out=zeros:128:int32
// truth: DataRace
__global__ void reused(const int *in, int *out) {
    __shared__ int held[64];
    int t = threadIdx.x;
    for (int part = 0; part < 2; ++part) {
        held[t] = in[part * 64 + t];
        __syncthreads();
        out[part * 64 + t] = held[63 - t];
    }
}
