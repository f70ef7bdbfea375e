// launch: grid=2,2 block=8,8 a=arange:256:float32 b=arange:256:float32 c=zeros:256:float32 n=16
// truth: DataRace
__global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[8][8], right[8][8];
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0.0f;
    for (int tile = 0; tile < n / 8; ++tile) {
        left[threadIdx.y][threadIdx.x] = a[row * n + tile * 8 + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile * 8 + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 8; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    }
    c[row * n + column] = sum;
}
