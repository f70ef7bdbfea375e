// launch: grid=1 block=32 a=arange:32:int32 out=zeros:32:int32
// truth: OutOfBounds
__global__ void negative(const int *a, int *out) { out[threadIdx.x] = a[int(threadIdx.x) - 1]; }
