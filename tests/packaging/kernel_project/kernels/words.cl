// How many words of each length a text has.
__kernel void words(__global const uchar *text, const uint length, __global uint *counts, __local uint *of_group)
{
    const uint t = get_local_id(0), i = get_global_id(0);
    of_group[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < length && text[i] != ' ' && (i == 0 || text[i - 1] == ' ')) {
        uint end = i;
        while (end < length && text[end] != ' ')
            ++end;
        atomic_inc(&of_group[min(end - i, (uint)get_local_size(0) - 1)]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(&counts[t], of_group[t]);
}
