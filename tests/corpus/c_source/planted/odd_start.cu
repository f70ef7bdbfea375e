// Copies from a start that the caller chooses, four numbers at a time.
__global__ void odd_start(const float *in, int start, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = *reinterpret_cast<const float4 *>(in + start + 4 * i);
        out[4 * i] = v.x;
        out[4 * i + 1] = v.y;
        out[4 * i + 2] = v.z;
        out[4 * i + 3] = v.w;
    }
}
