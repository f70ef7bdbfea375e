// Cosine transform of rows of eight numbers, as vectors.
inline float8 butterflies(float8 v)
{
    float4 a = v.lo + v.hi.wzyx, b = v.lo - v.hi.wzyx;
    return (float8)(a.xy + a.wz, a.xy - a.wz, b * (float4)(0.98f, 0.83f, 0.56f, 0.2f));
}

__kernel void dct(__global const float8 *rows, __global float8 *out)
{
    const size_t i = get_global_id(0);
    float8 v = butterflies(rows[i]);
    out[i] = v.s04261537;
}
