// launch: grid=1 block=64 in=arange:256:float32 out=zeros:64:float32
// truth: DataRace
__global__ void buffers(const float *in, float *out) {
    __shared__ float held[2][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        held[k & 1][t] = in[k * 64 + t];
        if (k % 2 == 0) __syncthreads();
        sum += held[k & 1][63 - t];
    }
    out[t] = sum;
}
