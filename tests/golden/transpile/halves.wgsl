// Compute with 16-bit floats; every operation is rounded.
//
// Written by Windtunnel from the kernel 'halves': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

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

fn wt_floor_div_f32(a: f32, b: f32) -> f32 {
    // Rounds down, as Python and NumPy do, from the remainder.
    if (b == 0.0f) { return a / b; }
    let r = a % b;
    var q = (a - r) / b;
    if (r != 0.0f && ((b < 0.0f) != (r < 0.0f))) { q -= 1.0f; }
    if (q == 0.0f) { return bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u); }
    let down = floor(q);
    return select(down, down + 1.0f, q - down > 0.5f);
}

@compute @workgroup_size(256, 1, 1)
fn halves(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    let a = f16(params.a);
    let scale = params.scale;
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.x_shape0) {
        var z: f16 = a * x[i] + y[i];
        z = f16(f32(z) / f32(abs(x[i]) + 1.0h)) - f16(scale * 0.1f);
        z = f16(f32(z) * f32(a) + f32(f16(sqrt(f32(abs(y[i])))) + f16(wt_floor_div_f32(f32(z), f32(3.0h)))));
        y[i] = max(min(z, 1000.0h), -x[i]);
    }
}
