// A box filter of an image of bytes, with saturation.
__constant int reach = 1;

__kernel void box_filter(__global const uchar *in, __global uchar *out, const int2 size)
{
    const int2 at = (int2)(get_global_id(0), get_global_id(1));
    if (any(at >= size))
        return;
    uint sum = 0, count = 0;
    for (int dy = -reach; dy <= reach; ++dy)
        for (int dx = -reach; dx <= reach; ++dx) {
            const int2 p = at + (int2)(dx, dy);
            if (all(p >= 0) && all(p < size)) {
                sum += in[p.y * size.x + p.x];
                ++count;
            }
        }
    out[at.y * size.x + at.x] = convert_uchar_sat(sum * 3 / count);
}
