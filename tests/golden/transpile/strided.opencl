// Process the elements of a thread with a constant stride.
//
// Written by Windtunnel from the kernel 'strided': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void strided(__global const float *x, __global float *out, int x_shape0, float scale) {
    int start = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    for (int i = start; i < x_shape0; i += (int)get_num_groups(0) * (int)get_local_size(0)) {
        out[i] = fmax(x[i], 0.0f) * scale - fmin(x[i], -1.0f);
    }
}
