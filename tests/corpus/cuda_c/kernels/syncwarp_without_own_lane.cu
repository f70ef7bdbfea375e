// launch: grid=1 block=32 out=zeros:32:int32
// truth: BarrierDivergence
__global__ void masked(int *out) {
    if (threadIdx.x < 16) __syncwarp(0x0000ff00u);
    out[threadIdx.x] = threadIdx.x;
}
