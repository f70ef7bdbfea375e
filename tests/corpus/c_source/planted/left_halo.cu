// A stencil of three points; the first point has no left neighbour.
__global__ void left_halo(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n - 1)
        return;
    out[i] = in[i + 1] - 2.0f * in[i] + in[i - 1];
}
