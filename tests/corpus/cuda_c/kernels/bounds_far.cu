// launch: grid=1 block=32 a=arange:32:int32
// truth: OutOfBounds
__global__ void far(int *a) { if (threadIdx.x == 5) a[1 << 28] = 1; }
