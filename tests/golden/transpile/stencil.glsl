// Compute one step of heat flow; the edge keeps its temperature.
//
// Written by Windtunnel from the kernel 'stencil': GLSL for Vulkan.
// Compile with -V --target-env vulkan1.1: glslang's; mark every operation on floats NoContraction, or a product and a sum may become one operation.

#version 450

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;

layout(push_constant) uniform Params {
    int field_shape0;
    int field_shape1;
    int out_shape0;
    int out_shape1;
} params;

layout(set = 0, binding = 0, std430) readonly buffer wt_buffer0 { float field[]; };
layout(set = 0, binding = 1, std430) buffer wt_buffer1 { float out_[]; };

void main() {
    int x = int(gl_WorkGroupID.x) * int(gl_WorkGroupSize.x) + int(gl_LocalInvocationID.x);
    int y = int(gl_WorkGroupID.y) * int(gl_WorkGroupSize.y) + int(gl_LocalInvocationID.y);
    int height = params.field_shape0;
    int width = params.field_shape1;
    if (x >= width || y >= height) {
        return;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out_[y * params.out_shape1 + x] = field[y * params.field_shape1 + x];
        return;
    }
    float around = field[(y - 1) * params.field_shape1 + x] + field[(y + 1) * params.field_shape1 + x] + field[y * params.field_shape1 + (x - 1)] + field[y * params.field_shape1 + (x + 1)];
    out_[y * params.out_shape1 + x] = field[y * params.field_shape1 + x] + 0.1f * (around - 4.0f * field[y * params.field_shape1 + x]);
}
