// launch: grid=1 block=64 out=zeros:64:int32
// truth: OutOfBounds
__global__ void shared_static(int *out) {
    __shared__ int held[63];
    held[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = held[0];
}
