// launch: grid=1 block=32 in=arange:32:int32 out=zeros:32:int32
// truth: BarrierDivergence
__global__ void branches(const int *in, int *out) {
    __shared__ int held[32];
    held[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x % 2) {
        __syncthreads();
        out[threadIdx.x] = held[31 - threadIdx.x];
    } else {
        __syncthreads();
        out[threadIdx.x] = held[31 - threadIdx.x] + 1000;
    }
}
