// Compute one step of heat flow; the edge keeps its temperature.
//
// Written by Windtunnel from the kernel 'stencil': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    field_shape0: i32,
    field_shape1: i32,
    out_shape0: i32,
    out_shape1: i32,
}

@group(0) @binding(0) var<storage, read> field: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(8, 8, 1);

@compute @workgroup_size(8, 8, 1)
fn stencil(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var x: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    var y: i32 = blockIdx.y * blockDim.y + threadIdx.y;
    var height: i32 = params.field_shape0;
    var width: i32 = params.field_shape1;
    if (x >= width || y >= height) {
        return;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[y * params.out_shape1 + x] = field[y * params.field_shape1 + x];
        return;
    }
    var around: f32 = field[(y - 1) * params.field_shape1 + x] + field[(y + 1) * params.field_shape1 + x] + field[y * params.field_shape1 + (x - 1)] + field[y * params.field_shape1 + (x + 1)];
    out[y * params.out_shape1 + x] = field[y * params.field_shape1 + x] + 0.1f * (around - 4.0f * field[y * params.field_shape1 + x]);
}
