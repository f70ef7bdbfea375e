// launch: grid=1 block=32 out=zeros:32:int32
// truth: undefined-shuffle
__global__ void mask(int *out) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, int(threadIdx.x), 1); }
