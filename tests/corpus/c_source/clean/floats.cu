// Floats as in C: products are added with one rounding, conversions, NaN, signed zeros.
__global__ void floats(const float *in, float *out, double *wide, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i] * 0.37f - 3.0f, y = in[n - 1 - i] / 7.0f;
    float *o = out + 8 * i;
    o[0] = x * y + 1.0f / 3.0f;
    o[1] = x - y * y;
    o[2] = x * x - y * y;
    o[3] = (float)((int)(x * 1000.0f)) / 3;
    o[4] = fminf(x, 0.0f / (float)(i % 2)) + copysignf(0.0f, -x);
    o[5] = fmaf(x, y, -x * y);
    o[6] = __int_as_float((__float_as_int(y) & 0x007fffff) | 0x3f800000);
    o[7] = sqrtf(fabsf(x)) + floorf(y) + truncf(x);
    wide[i] = (double)x * y + x * (double)i - 0.1;
}
