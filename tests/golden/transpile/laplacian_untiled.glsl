// Compute the same stencil without a tile.
//
// Written by Windtunnel from the kernel 'laplacian_untiled': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int a_shape0;
    int a_shape1;
    int out_shape0;
    int out_shape1;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float a[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float out_[]; };

void main() {
    int x = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x) + 1;
    int y = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + int(gl_LocalInvocationID.y) + 1;
    if (x < params.a_shape1 - 1 && y < params.a_shape0 - 1) {
        out_[y * params.out_shape1 + x] = a[(y - 1) * params.a_shape1 + x] + a[(y + 1) * params.a_shape1 + x] + a[y * params.a_shape1 + (x + 1)] + a[y * params.a_shape1 + (x - 1)] - 4.0f * a[y * params.a_shape1 + x];
    }
}
