// A message from one group to the next.
__kernel void order_of_a_flag(__global int *message, __global atomic_int *flag, __global int *out)
{
    if (get_local_id(0) != 0)
        return;
    if (get_group_id(0) == 0) {
        message[0] = 11;
        atomic_store_explicit(flag, 1, memory_order_relaxed, memory_scope_device);
    } else {
        while (atomic_load_explicit(flag, memory_order_acquire, memory_scope_device) == 0)
            ;
        out[0] = message[0];
    }
}
