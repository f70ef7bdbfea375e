// launch: grid=1 block=8 a=arange:64:float32 out=zeros:32:float32
// truth: misaligned
__global__ void misaligned(const float *a, float4 *out) { out[threadIdx.x] = *reinterpret_cast<const float4 *>(a + 4 * threadIdx.x + 1); }
