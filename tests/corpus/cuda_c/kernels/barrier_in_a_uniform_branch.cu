// launch: grid=2 block=32 in=arange:64:int32 out=zeros:64:int32
// truth: clean
__global__ void uniform_branch(const int *in, int *out) {
    __shared__ int held[32];
    int i = blockIdx.x * 32 + threadIdx.x;
    held[threadIdx.x] = in[i];
    if (blockIdx.x == 0) {
        __syncthreads();
        out[i] = held[31 - threadIdx.x];
    } else {
        out[i] = held[threadIdx.x];
    }
}
