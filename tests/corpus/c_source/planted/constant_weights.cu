// A filter whose weights are constants.
#define RADIUS 2
__constant__ float weights[RADIUS] = {0.5f, 0.25f};

__global__ void constant_weights(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int r = -RADIUS; r <= RADIUS; ++r) {
        int at = i + r;
        if (at >= 0 && at < n)
            sum += weights[abs(r)] * in[at];
    }
    if (i < n)
        out[i] = sum;
}
