// launch: grid=4 block=32 data=arange:128:int32 arrived=zeros:1:uint32 out=zeros:128:int32
// truth: clean
__global__ void grid_barrier(volatile int *data, unsigned *arrived, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i * 3;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (atomicAdd(arrived, 0u) < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    out[i] = data[(i + 32) % 128];
}
