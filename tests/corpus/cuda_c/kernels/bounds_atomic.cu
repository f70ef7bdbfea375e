// launch: grid=1 block=64 in=arange:64:int32 bins=zeros:8:int32
// truth: OutOfBounds
__global__ void histogram(const int *in, int *bins) { atomicAdd(&bins[in[threadIdx.x] / 7], 1); }
