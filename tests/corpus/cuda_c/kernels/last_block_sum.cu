// launch: grid=8 block=32 in=arange:256:int32 partial=zeros:8:int32 done=zeros:1:uint32 out=zeros:1:int32
// truth: clean
__device__ bool is_last(unsigned *done) { return atomicInc(done, gridDim.x) == gridDim.x - 1; }
__global__ void last_block(const int *in, volatile int *partial, unsigned *done, int *out) {
    __shared__ bool last;
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = is_last(done);
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int whole = 0;
        for (unsigned b = 0; b < gridDim.x; ++b) whole += partial[b];
        *out = whole;
    }
}
