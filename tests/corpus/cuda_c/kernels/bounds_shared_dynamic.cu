// launch: grid=1 block=64 shared=128 out=zeros:64:int32
// truth: OutOfBounds
__global__ void shared_dynamic(int *out) {
    extern __shared__ int held[];
    held[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = held[0];
}
