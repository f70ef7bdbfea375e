// launch: grid=1 block=16,16 out=zeros:256:float32
// truth: OutOfBounds
__global__ void rows(float *out) {
    __shared__ float tile[16][16];
    tile[threadIdx.y + 1][threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.y * 16 + threadIdx.x] = threadIdx.y ? tile[threadIdx.y][threadIdx.x] : 0.0f;
}
