// The four smallest numbers of each thread's part, in order.
__global__ void insertion(const int *in, int *out, int each)
{
    int best[4];
    int t = threadIdx.x + blockIdx.x * blockDim.x;
    for (int j = 0; j < 3; ++j)
        best[j] = 1 << 30;
    for (int j = 0; j < each; ++j) {
        int v = in[t * each + j], k = 3;
        if (v >= best[3])
            continue;
        while (k > 0 && best[k - 1] > v) {
            best[k] = best[k - 1];
            --k;
        }
        best[k] = v;
    }
    for (int j = 0; j < 4; ++j)
        out[t * 4 + j] = best[j];
}
