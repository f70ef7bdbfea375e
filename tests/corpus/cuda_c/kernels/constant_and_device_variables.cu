// launch: grid=2 block=32 out=zeros:64:int32
// truth: clean
__constant__ int table[4] = {2, 3, 5, 7};
__device__ int offset = 1000;
__global__ void constants(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[i % 4] * i + offset;
}
