// Compute the same stencil without a tile.
//
// Written by Windtunnel from the kernel 'laplacian_untiled': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void laplacian_untiled(__global const float *a, __global float *out, int a_shape0, int a_shape1, int out_shape0, int out_shape1) {
    int x = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0) + 1;
    int y = (int)get_group_id(1) * (int)get_local_size(1) + (int)get_local_id(1) + 1;
    if (x < a_shape1 - 1 && y < a_shape0 - 1) {
        out[y * out_shape1 + x] = a[(y - 1) * a_shape1 + x] + a[(y + 1) * a_shape1 + x] + a[y * a_shape1 + (x + 1)] + a[y * a_shape1 + (x - 1)] - 4.0f * a[y * a_shape1 + x];
    }
}
