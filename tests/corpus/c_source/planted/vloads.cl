// Multiplies vectors of four numbers by a factor.
__kernel void vloads(__global const int *in, __global int *out, const int n, const int factor)
{
    const int i = get_global_id(0);
    if (i * 4 < n)
        vstore4(vload4(i, in) * factor, i, out);
}
