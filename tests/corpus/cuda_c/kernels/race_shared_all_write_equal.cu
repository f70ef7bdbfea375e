// launch: grid=1 block=64 out=zeros:64:int32
// truth: equal-writes
__global__ void all_write_equal(int *out) {
    __shared__ int held;
    held = 7;
    __syncthreads();
    out[threadIdx.x] = held;
}
