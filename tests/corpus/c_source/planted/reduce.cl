// Sums of groups by a tree in local memory.
__kernel void reduce(__global const float *in, __global float *sums, __local float *part, const uint n)
{
    const uint t = get_local_id(0), i = get_global_id(0);
    part[t] = i < n ? in[i] : 0.0f;
    for (uint s = get_local_size(0) / 2; s > 0; s >>= 1) {
        if (t < s)
            part[t] += part[t + s];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (t == 0)
        sums[get_group_id(0)] = part[0];
}
