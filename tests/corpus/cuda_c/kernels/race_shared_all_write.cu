// launch: grid=1 block=64 out=zeros:64:int32
// truth: DataRace
__global__ void all_write(int *out) {
    __shared__ int held;
    held = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = held;
}
