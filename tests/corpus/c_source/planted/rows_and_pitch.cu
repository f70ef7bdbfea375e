// Copies a matrix whose rows have a pitch.
__global__ void rows_and_pitch(const int *in, int *out, int width, int height, int pitch)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height)
        out[y * width + x] = in[x * pitch + y];
}
