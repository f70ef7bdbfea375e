// Sum of 64 numbers a block; the last steps stay within one warp.
__global__ void warp_tail(const int *in, int *out)
{
    __shared__ int s[64];
    const unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * 64 + t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        for (int offset = 16; offset > 0; offset >>= 1) {
            int v = t < offset ? s[t + offset] : 0;
            s[t] += v;
        }
        if (t == 0)
            out[blockIdx.x] = s[0];
    }
}
