// launch: grid=1 block=96 out=zeros:96:int32
// truth: BarrierDivergence
__global__ void skipped(int *out) {
    if (threadIdx.x / 32 != 1) __syncthreads();
    out[threadIdx.x] = threadIdx.x;
}
