// launch: grid=4 block=32 count=zeros:1:int32
// truth: scoped-atomic
__global__ void scoped(int *count) { atomicAdd_block(count, 1); }
