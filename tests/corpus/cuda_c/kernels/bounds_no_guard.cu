// launch: grid=2 block=64 a=arange:100:float32
// truth: OutOfBounds
__global__ void unguarded(float *a) { a[blockIdx.x * blockDim.x + threadIdx.x] *= 2.0f; }
