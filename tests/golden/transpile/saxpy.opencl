// Compute y = a x + y, one element per thread.
//
// The result is rounded twice: after the product and after the sum.
//
// Written by Windtunnel from the kernel 'saxpy': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void saxpy(__global const float *x, __global float *y, int n, float a) {
    int i = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}
