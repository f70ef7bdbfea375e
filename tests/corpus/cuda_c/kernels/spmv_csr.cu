// launch: grid=1 block=32 rows=arange:33:int32 columns=arange:32:int32 values=arange:32:float32 x=arange:32:float32 y=zeros:32:float32
// truth: clean
__global__ void spmv(const int *rows, const int *columns, const float *values, const float *x, float *y) {
    int row = threadIdx.x;
    float sum = 0.0f;
    for (int k = rows[row]; k < rows[row + 1]; ++k) sum += values[k] * x[columns[k]];
    y[row] = sum;
}
