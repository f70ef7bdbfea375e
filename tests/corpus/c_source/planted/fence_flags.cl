// Exchanges numbers between the halves of a group, through global memory.
__kernel void fence_flags(__global int *data, __global int *scratch)
{
    const size_t i = get_global_id(0), t = get_local_id(0), n = get_local_size(0);
    scratch[i] = data[i] * 2;
    barrier(CLK_LOCAL_MEM_FENCE);
    data[i] = scratch[i - t + (t + n / 2) % n];
}
