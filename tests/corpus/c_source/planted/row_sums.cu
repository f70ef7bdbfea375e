// Sums of the rows of a matrix, one thread a row.
__global__ void row_sums(const float *m, float *sums, int rows, int columns)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum;
        for (int c = 0; c < columns; ++c)
            sum += m[row * columns + c];
        sums[row] = sum;
    }
}
