// A shift of a volume by one plane.
__global__ void volume(const short *in, short *out, dim3 size)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size.x || y >= size.y || z >= size.z)
        return;
    out[(z * size.y + y) * size.x + x] = in[((z + 1) * size.y + y) * size.x + x];
}
