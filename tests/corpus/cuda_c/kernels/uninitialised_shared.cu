// launch: grid=1 block=32 out=zeros:32:int32
// truth: UninitializedRead
__global__ void shared_read(int *out) {
    __shared__ int held[32];
    if (threadIdx.x % 2) held[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = held[31 - threadIdx.x];
}
