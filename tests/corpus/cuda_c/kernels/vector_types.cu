// launch: grid=1 block=32 in=arange:128:float32 out=zeros:128:float32
// truth: clean
__global__ void vectors(const float4 *in, float4 *out) {
    float4 v = in[threadIdx.x];
    float2 sum = make_float2(v.x + v.y, v.z + v.w);
    int3 whole = make_int3(int(sum.x), int(sum.y), 7);
    out[threadIdx.x] = make_float4(sum.x, sum.y, whole.x % whole.z, whole.y / whole.z);
}
