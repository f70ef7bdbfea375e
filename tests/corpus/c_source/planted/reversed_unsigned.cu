// Reverses an array.
__global__ void reversed_unsigned(const unsigned char *in, unsigned char *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned from = n - 1 - i;
    if (from >= 0)
        out[i] = in[from];
}
