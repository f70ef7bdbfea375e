// launch: grid=1 block=64 a=empty:64:int32 out=zeros:64:int32
// truth: UninitializedRead
__global__ void second(int *a, int *out) {
    if (threadIdx.x % 2 == 0) a[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x ^ 1];
}
