// launch: grid=1 block=32 in=arange:32:float32 out=zeros:256:float32 wide=zeros:128:float64
// truth: clean
__global__ void functions(const float *in, float *out, double *wide) {
    int i = threadIdx.x;
    float v = (in[i] + 1.0f) * 0.11f;
    double d = v;
    out[i] = sinf(v); out[32 + i] = expf(v); out[64 + i] = logf(v); out[96 + i] = powf(v, 1.7f);
    out[128 + i] = tanhf(v); out[160 + i] = rsqrtf(v); out[192 + i] = erff(v); out[224 + i] = __expf(v);
    wide[i] = sin(d); wide[32 + i] = exp(d); wide[64 + i] = log(d); wide[96 + i] = pow(d, 1.7);
}
