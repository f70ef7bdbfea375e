// The last group to arrive adds up what the groups have found.
__kernel void scope_of_a_group(__global const int *in, __global int *found, __global atomic_int *arrived, __global int *sum)
{
    const int group = get_group_id(0), groups = get_num_groups(0);
    if (get_local_id(0) != 0)
        return;
    found[group] = in[group] * 2;
    if (atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel, memory_scope_work_group) == groups - 1) {
        int total = 0;
        for (int g = 0; g < groups; ++g)
            total += found[g];
        *sum = total;
    }
}
