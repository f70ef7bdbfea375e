__kernel void clear(__global int *bins) { bins[get_global_id(0)] = 0; }

__kernel void count(__global const int *values, __global int *bins, __local int *held) {
    int t = get_local_id(0);
    if (t < 8) held[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_inc(&held[values[get_global_id(0)] % 8]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (t < 8) atomic_add(&bins[t], held[t]);
}
