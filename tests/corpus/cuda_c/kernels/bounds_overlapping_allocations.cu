// launch: grid=1 block=32 a=zeros:32:int32 b=zeros:32:int32
// truth: OutOfBounds
__global__ void past(int *a, int *b) {
    a[threadIdx.x + 32] = 7;
    b[threadIdx.x] = 1;
}
