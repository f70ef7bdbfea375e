// Compute sums of warps by shuffles, and votes of their threads.
//
// Written by Windtunnel from the kernel 'warp_sum': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_subgroup_ballot : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#pragma OPENCL EXTENSION cl_khr_subgroups : enable

static inline uint wt_source_lane(int wanted) {
    // The thread's own lane, if the wanted one does not exist.
    return (uint)wanted < get_sub_group_size() ? (uint)wanted : get_sub_group_local_id();
}

__kernel void warp_sum(__global const int *x, __global int *sums, __global uint *flags) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    int value = x[i];
    int distance = (int)get_max_sub_group_size() / 2;
    while (distance > 0) {
        value = (uint)value + (uint)sub_group_shuffle(value, wt_source_lane((int)get_sub_group_local_id() + distance));
        distance = distance / 2;
    }
    int first = sub_group_shuffle(value, 0u & (get_max_sub_group_size() - 1));
    int other = sub_group_shuffle(i, wt_source_lane((int)get_sub_group_local_id() ^ 1));
    sums[i] = (uint)first + ((uint)other - (uint)i);
    uint votes = sub_group_ballot(x[i] > 0).x;
    flags[i] = sub_group_any(x[i] > 5) != 0 ? votes : 0u;
    if ((int)get_sub_group_local_id() == 0) {
        flags[i] += 1u;
    }
}
