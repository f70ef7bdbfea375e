// launch: grid=1 block=32 out=zeros:32:int32
// truth: undefined-shuffle
__global__ void inactive(int *out) {
    int value = threadIdx.x * 3;
    if (threadIdx.x < 16) value = __shfl_sync(0x0000ffffu, value, threadIdx.x + 16);
    out[threadIdx.x] = value;
}
