// launch: grid=4 block=32 data=arange:128:int32 out=zeros:128:int32
// truth: DataRace
__global__ void between(int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i * 2;
    __syncthreads();
    out[i] = data[(i + 32) % 128];
}
