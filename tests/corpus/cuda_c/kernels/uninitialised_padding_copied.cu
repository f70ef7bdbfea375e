// launch: grid=1 block=32 a=empty:64:int32 out=zeros:64:int32
// truth: UninitializedRead
__global__ void copied(int *a, int *out) {
    if (threadIdx.x < 16) a[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x];
}
