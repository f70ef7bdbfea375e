// Adds up the channels of averaged colours.
__kernel void component(__global const uchar4 *a, __global const uchar4 *b, __global int *out)
{
    const size_t i = get_global_id(0);
    uchar4 c;
    c.xyz = (a[i].xyz >> (uchar)1) + (b[i].xyz >> (uchar)1);
    out[i] = c.x + c.y + c.z + c.w;
}
