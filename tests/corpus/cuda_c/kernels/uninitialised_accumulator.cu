// launch: grid=1 block=64 sum=empty:1:int32
// truth: UninitializedRead
__global__ void accumulated(int *sum) { atomicAdd(sum, 1); }
