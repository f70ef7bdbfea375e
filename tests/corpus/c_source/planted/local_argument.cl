// Local maxima of a group and its neighbours' border numbers.
__kernel void local_argument(__global const int *in, __global int *out, __local int *held, int n)
{
    int i = get_global_id(0), t = get_local_id(0), size = get_local_size(0);
    held[t + 1] = in[i];
    if (t == 0)
        held[0] = i > 0 ? in[i - 1] : INT_MIN;
    if (t == size - 1)
        held[size + 1] = i + 1 < n ? in[i + 1] : INT_MIN;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = held[t + 1] > max(held[t], held[t + 2]);
}
