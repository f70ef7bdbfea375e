// Compute a one-dimensional stencil without a tile.
//
// Written by Windtunnel from the kernel 'smoothed': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    x_shape0: i32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

@compute @workgroup_size(256, 1, 1)
fn smoothed(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var x_1: i32 = blockIdx.x * blockDim.x + threadIdx.x + 2;
    if (x_1 < params.x_shape0 - 2) {
        var near: f32 = x[x_1 - 1] + x[x_1 + 1];
        out[x_1] = 0.5f * x[x_1] + 0.25f * near - 0.0625f * (x[x_1 - 2] + x[x_1 + 2]);
    }
}
