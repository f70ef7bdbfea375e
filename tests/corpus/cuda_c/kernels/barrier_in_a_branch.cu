// launch: grid=1 block=64 in=arange:64:int32 out=zeros:64:int32
// truth: BarrierDivergence
__global__ void branch(const int *in, int *out) {
    __shared__ int held[64];
    held[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 16) __syncthreads();
    out[threadIdx.x] = threadIdx.x < 16 ? held[15 - threadIdx.x] : 0;
}
