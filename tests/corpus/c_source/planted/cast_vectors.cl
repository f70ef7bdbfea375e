// Copies rows of an odd width as vectors.
__kernel void cast_vectors(__global const float *in, __global float *out, const int width)
{
    const int row = get_global_id(1), x = get_global_id(0);
    __global const float2 *from = (__global const float2 *)(in + row * width);
    if (2 * x + 1 < width) {
        out[row * width + 2 * x] = from[x].x;
        out[row * width + 2 * x + 1] = from[x].y;
    }
}
