// Bins numbers into four classes, counted in registers.
__global__ void local_table(const int *in, int *out, int each)
{
    int counts[4] = {0, 0, 0, 0};
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < each; ++j)
        counts[in[t * each + j] / 16]++;
    for (int c = 0; c < 4; ++c)
        out[4 * t + c] = counts[c];
}
