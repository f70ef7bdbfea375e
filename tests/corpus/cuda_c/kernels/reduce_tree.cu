// launch: grid=4 block=128 in=arange:512:int32 out=zeros:4:int32
// truth: clean
__global__ void reduce_tree(const int *in, int *out) {
    __shared__ int held[128];
    int t = threadIdx.x;
    held[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step >>= 1) {
        if (t < step) held[t] += held[t + step];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = held[0];
}
