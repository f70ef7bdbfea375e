// launch: grid=1 block=64 out=zeros:64:int32
// truth: BarrierDivergence
__global__ void dependent(int *out) {
    for (int k = threadIdx.x; k < 64; k += 16) {
        __syncthreads();
        out[k] = k;
    }
}
