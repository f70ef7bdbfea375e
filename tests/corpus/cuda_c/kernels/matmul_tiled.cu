// launch: grid=2,2 block=8,8 a=arange:256:float32 b=arange:256:float32 c=zeros:256:float32 n=16
// truth: clean
template <int SIDE> __device__ void product(const float *a, const float *b, float *c, int n) {
    __shared__ float left[SIDE][SIDE], right[SIDE][SIDE];
    int row = blockIdx.y * SIDE + threadIdx.y, column = blockIdx.x * SIDE + threadIdx.x;
    float sum = 0.0f;
    for (int tile = 0; tile < n / SIDE; ++tile) {
        left[threadIdx.y][threadIdx.x] = a[row * n + tile * SIDE + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile * SIDE + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < SIDE; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
__global__ void matmul(const float *a, const float *b, float *c, int n) { product<8>(a, b, c, n); }
