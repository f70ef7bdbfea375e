// launch: grid=2 block=64 in=arange:128:int32 out=zeros:128:int32
// truth: DataRace
__global__ void reversed(const int *in, int *out) {
    __shared__ int held[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    held[t] = in[i];
    out[i] = held[63 - t];
}
