// 16-bit floats: every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': WGSL.
// There is no option against contraction: where an implementation fuses or flushes, the last bit may differ.

enable f16;

struct Params {
    x_shape0: i32,
    a: f32,
    scale: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f16>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;
@group(0) @binding(2) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

@compute @workgroup_size(256, 1, 1)
fn halves(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    let a = f16(params.a);
    let scale = params.scale;
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.x_shape0) {
        var z: f16 = a * x[i] + y[i];
        z = z / (abs(x[i]) + 1.0h) - f16(scale * 0.1f);
        y[i] = max(min(z, 1000.0h), -x[i]);
    }
}
