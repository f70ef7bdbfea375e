// launch: grid=1 block=64 in=arange:64:int32 out=zeros:64:int32 n=40
// truth: BarrierDivergence
__global__ void early_exit(const int *in, int *out, int n) {
    __shared__ int held[64];
    if (threadIdx.x >= n) return;
    held[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = held[n - 1 - threadIdx.x];
}
