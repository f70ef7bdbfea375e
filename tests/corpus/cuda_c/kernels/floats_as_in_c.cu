// launch: grid=1 block=32 in=arange:32:float32 out=zeros:224:float32
// truth: clean
__global__ void floats(const float *in, float *out) {
    int i = threadIdx.x;
    float v = in[i] * 0.37f - 5.0f;
    out[i] = v / 3.0f;
    out[32 + i] = __fmaf_rn(v, v, 1.0f);
    out[64 + i] = rintf(v) + truncf(v) + floorf(v);
    out[96 + i] = sqrtf(fabsf(v));
    out[128 + i] = __fadd_rz(v, 1e-7f);
    out[160 + i] = __int_as_float(__float_as_int(v) ^ 1);
    out[192 + i] = fminf(v, 1.0f) + fmaxf(v, -2.0f) + copysignf(1.0f, v);
}
