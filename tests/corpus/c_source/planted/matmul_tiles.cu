// C = A B for square matrices whose side is a multiple of the tile's.
template <int TILE>
__device__ inline float dot_of_tiles(const float (&a)[TILE][TILE], const float (&b)[TILE][TILE])
{
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < TILE; ++k)
        sum += a[threadIdx.y][k] * b[k][threadIdx.x];
    return sum;
}

template <int TILE>
__global__ void matmul_tiles(const float *A, const float *B, float *C, int n)
{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int part = 0; part < n / TILE; ++part) {
        a[threadIdx.y][threadIdx.x] = A[row * n + part * TILE + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = B[(part * TILE + threadIdx.y) * n + column];
        __syncthreads();
        sum += dot_of_tiles(a, b);
    }
    C[row * n + column] = sum;
}

template __global__ void matmul_tiles<8>(const float *, const float *, float *, int);
