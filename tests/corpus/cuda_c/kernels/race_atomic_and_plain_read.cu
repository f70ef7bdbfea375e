// launch: grid=1 block=64 out=zeros:64:int32
// truth: DataRace
__global__ void mixed(int *out) {
    __shared__ int held;
    if (threadIdx.x == 0) held = 0;
    __syncthreads();
    atomicAdd(&held, 1);
    out[threadIdx.x] = held;
}
