// launch: grid=4 block=32 in=arange:128:float32 out=zeros:128:float32 n=128
// truth: clean
__global__ void stencil(const float *in, float *out, int n) {
    __shared__ float held[34];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x + 1;
    held[t] = in[i];
    if (threadIdx.x == 0) held[0] = i > 0 ? in[i - 1] : 0.0f;
    if (threadIdx.x == blockDim.x - 1) held[t + 1] = i + 1 < n ? in[i + 1] : 0.0f;
    __syncthreads();
    out[i] = 0.25f * held[t - 1] + 0.5f * held[t] + 0.25f * held[t + 1];
}
