// launch: grid=1 block=32 a=arange:32:int32 out=zeros:32:int32
// truth: OutOfBounds
__global__ void underflow(const int *a, int *out) {
    unsigned i = threadIdx.x;
    out[i] = a[i - 1u];
}
