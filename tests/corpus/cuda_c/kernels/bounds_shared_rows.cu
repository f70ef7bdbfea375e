// launch: grid=1 block=32 out=zeros:32:int32
// truth: DataRace
__global__ void rows(int *out) {
    __shared__ int held[2][16];
    held[0][threadIdx.x] = threadIdx.x;
    held[1][threadIdx.x % 16] = -1;
    __syncthreads();
    out[threadIdx.x] = held[0][threadIdx.x];
}
