// launch: grid=2,2,2 block=2,3,4 out=zeros:192:int32
// truth: clean
__global__ void three(int *out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    out[(z * 6 + y) * 4 + x] = x + 10 * y + 100 * z;
}
