// Round // and % down, with signs, for zero, the smallest number and floats; indices use plain operators.
//
// Written by Windtunnel from the kernel 'floors': WGSL.
// There is no option against contraction: if an implementation fuses operations or flushes subnormals, the last bit may differ.

struct Params {
    a_shape0: i32,
}

@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> quotient: array<i32>;
@group(0) @binding(3) var<storage, read_write> rest: array<i32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;
@group(0) @binding(5) var<storage, read> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> fq: array<f32>;
@group(0) @binding(7) var<storage, read_write> fr: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;
const blockDim = vec3<i32>(256, 1, 1);

fn wt_floor_div_i32(a: i32, b: i32) -> i32 {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) { return 0; }
    if (b == -1) { return -a; }
    let q = a / b;
    return select(q, q - 1, q * b != a && ((a ^ b) < 0));
}

fn wt_floor_mod_i32(a: i32, b: i32) -> i32 {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) { return 0; }
    let r = a % b;
    return select(r, r + b, r != 0 && ((r ^ b) < 0));
}

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

fn wt_floor_mod_f32(a: f32, b: f32) -> f32 {
    // Has the sign of b, as Python's.
    let r = a % b;
    if (r == 0.0f) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
    return select(r, r + b, (b < 0.0f) != (r < 0.0f));
}

@compute @workgroup_size(256, 1, 1)
fn floors(@builtin(local_invocation_id) local_invocation_id: vec3<u32>, @builtin(workgroup_id) workgroup_id: vec3<u32>) {
    let threadIdx = vec3<i32>(local_invocation_id);
    let blockIdx = vec3<i32>(workgroup_id);
    var i: i32 = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < params.a_shape0) {
        quotient[i] = wt_floor_div_i32(a[i], b[i]) + threadIdx.x / 4;
        rest[i] = wt_floor_mod_i32(a[i], b[i]) + i % 3;
        fq[i] = wt_floor_div_f32(x[i], y[i]);
        fr[i] = wt_floor_mod_f32(x[i], y[i]);
    }
}
