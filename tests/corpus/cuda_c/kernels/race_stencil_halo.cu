// launch: grid=2 block=32 in=arange:64:float32 out=zeros:64:float32
// truth: DataRace
__global__ void stencil(const float *in, float *out) {
    __shared__ float held[34];
    int i = blockIdx.x * 32 + threadIdx.x, t = threadIdx.x + 1;
    held[t] = in[i];
    if (threadIdx.x == 0) held[0] = 0.0f;
    if (threadIdx.x == 31) held[33] = 0.0f;
    out[i] = held[t - 1] + held[t] + held[t + 1];
}
