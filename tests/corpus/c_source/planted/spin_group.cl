// Work-items wait for the first one of their group.
__kernel void spin_group(volatile __global int *ready, __global int *out)
{
    const int group = get_group_id(0), t = get_local_id(0);
    if (t == 0) {
        out[get_global_id(0)] = group;
        mem_fence(CLK_GLOBAL_MEM_FENCE);
        atomic_xchg(&ready[group], group);
    } else {
        while (atomic_or(&ready[group], 0) == 0)
            ;
        mem_fence(CLK_GLOBAL_MEM_FENCE);
        out[get_global_id(0)] = out[get_global_id(0) - t] + t;
    }
}
