// Horner's rule and its estimate of the error, with Estrin's scheme beside it.
__device__ __forceinline__ float horner(const float *c, float x)
{
    float r = c[5];
    for (int k = 4; k >= 0; --k)
        r = r * x + c[k];
    return r;
}

__global__ void polynomial(const float *xs, const float *coefficients, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = xs[i] / 61.0f - 0.4f;
    const float *c = coefficients;
    float square = x * x;
    float estrin = (c[0] + c[1] * x) + (c[2] + c[3] * x) * square + (c[4] + c[5] * x) * (square * square);
    out[2 * i] = horner(c, x);
    out[2 * i + 1] = estrin - horner(c, x);
}
