// Transposes a square matrix in place.
__global__ void transpose_in_place(int *m, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) {
        int other = m[x * n + y];
        m[x * n + y] = m[y * n + x];
        m[y * n + x] = other;
    }
}
