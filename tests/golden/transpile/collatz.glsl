// Count the steps to 1; -1 if 200 steps are not enough, -2 for numbers below 1.
//
// Written by Windtunnel from the kernel 'collatz': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int x_shape0;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { int x[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { int steps[]; };

int wt_floor_mod_i32(int a, int b) {
    // Has the sign of b, as Python's. GLSL does not say what its own % is of numbers below 0.
    if (b == 0 || b == -1) return 0;
    int r = a - a / b * b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int wt_floor_div_i32(int a, int b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return -a;
    int q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

void main() {
    int i = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    if (i >= params.x_shape0) {
        return;
    }
    int n = x[i];
    if (n <= 0) {
        steps[i] = -2;
        return;
    }
    int count = 0;
    while (true) {
        if (n == 1) {
            break;
        }
        if (count >= 200) {
            count = -1;
            break;
        }
        count += 1;
        if (wt_floor_mod_i32(n, 2) == 0) {
            n = wt_floor_div_i32(n, 2);
            continue;
        }
        n = 3 * n + 1;
    }
    steps[i] = count;
}
