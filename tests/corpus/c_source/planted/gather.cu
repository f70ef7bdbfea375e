// out[i] = table[index[i]]
__global__ void gather(const double *table, int size, const int *index, double *out, int n)
{
    const int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n && index[i] <= size)
        out[i] = __ldg(&table[index[i]]);
}
