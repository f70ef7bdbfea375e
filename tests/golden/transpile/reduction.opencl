// Sum the elements of each block in a tree.
//
// Written by Windtunnel from the kernel 'reduction': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void reduction(__global const int *x, __global int *out, int x_shape0) {
    __local int part[256];
    int t = (int)get_local_id(0);
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    part[t] = i < x_shape0 ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    int stride = (int)get_local_size(0) / 2;
    while (stride > 0) {
        if (t < stride) {
            part[t] = (uint)part[t] + (uint)part[t + stride];
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        stride = stride / 2;
    }
    if (t == 0) {
        out[(int)get_group_id(0)] = part[0];
    }
}
