// Weighted sums; the weights may be missing.
__global__ void optional_weights(const float *in, const float *weights, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float w = weights[i % 8];
    if (i < n)
        out[i] = w * in[i];
}
