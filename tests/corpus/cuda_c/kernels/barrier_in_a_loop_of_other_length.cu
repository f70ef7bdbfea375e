// launch: grid=1 block=64 out=zeros:64:int32
// truth: BarrierDivergence
__global__ void lengths(int *out) {
    int sum = 0;
    for (int k = 0; k < (threadIdx.x < 32 ? 3 : 2); ++k) {
        sum += k;
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
