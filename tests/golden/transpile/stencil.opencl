// Compute one step of heat flow; the edge keeps its temperature.
//
// Written by Windtunnel from the kernel 'stencil': OpenCL C.
// Compile with -cl-fp32-correctly-rounded-divide-sqrt: if the device supports it; no option that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math).

#pragma OPENCL FP_CONTRACT OFF

__kernel void stencil(__global const float *field, __global float *out, int field_shape0, int field_shape1, int out_shape0, int out_shape1) {
    int x = (int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0);
    int y = (int)get_group_id(1) * (int)get_local_size(1) + (int)get_local_id(1);
    int height = field_shape0;
    int width = field_shape1;
    if (x >= width || y >= height) {
        return;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * out_shape1 + x] = field[y * field_shape1 + x];
        return;
    }
    float around = field[(y - 1) * field_shape1 + x] + field[(y + 1) * field_shape1 + x] + field[y * field_shape1 + (x - 1)] + field[y * field_shape1 + (x + 1)];
    out[y * out_shape1 + x] = field[y * field_shape1 + x] + 0.1f * (around - 4.0f * field[y * field_shape1 + x]);
}
