// Process the elements of a thread with a constant stride.
//
// Written by Windtunnel from the kernel 'strided': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    x_shape0: i32,
    scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

@compute @workgroup_size(256, 1, 1)
fn strided(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(num_workgroups) num_workgroups: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    let gridDim = vec3<i32>(num_workgroups);
    let scale = params.scale;
    var start: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    for (var i: i32 = start; i < params.x_shape0; i += gridDim.x * blockDim.x) {
        out[i] = max(x[i], 0.0f) * scale - min(x[i], -1.0f);
    }
}
