// Counts of numbers in equal intervals from 0 to 1.
__global__ void float_bins(const float *in, unsigned *bins, int count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int bin = (int)(in[i] * count);
    atomicAdd(bins + bin, 1u);
}
