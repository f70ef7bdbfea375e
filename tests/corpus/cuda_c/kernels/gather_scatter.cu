// launch: grid=2 block=64 in=arange:128:int32 out=zeros:128:int32
// truth: clean
__global__ void gather_scatter(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[(i * 5) % 128] = in[(i * 3 + 1) % 128];
}
