// launch: grid=1 block=32 out=zeros:32:int32
// truth: BarrierDivergence
__global__ void switched(int *out) {
    switch (threadIdx.x % 4) {
    case 0: __syncthreads(); out[threadIdx.x] = 1; break;
    case 1: __syncthreads(); out[threadIdx.x] = 2; break;
    default: out[threadIdx.x] = 3;
    }
}
