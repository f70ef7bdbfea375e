// launch: grid=1 block=32 index=arange:32:int32 a=zeros:31:int32
// truth: OutOfBounds
__global__ void indexed(const int *index, int *a) { a[index[threadIdx.x]] = 1; }
