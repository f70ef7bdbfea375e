// launch: grid=1 block=32 shared=384 out=zeros:32:float64
// truth: clean
__global__ void two_arrays(double *out) {
    extern __shared__ unsigned char raw[];
    double *wide = reinterpret_cast<double *>(raw);
    float *narrow = reinterpret_cast<float *>(raw + 32 * sizeof(double));
    int t = threadIdx.x;
    wide[t] = t * 0.5;
    narrow[t] = t * 0.25f;
    __syncthreads();
    out[t] = wide[31 - t] + narrow[(t + 1) % 32];
}
