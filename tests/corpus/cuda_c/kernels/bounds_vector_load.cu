// launch: grid=1 block=32 in=arange:126:float32 out=zeros:128:float32
// truth: OutOfBounds
__global__ void vector_load(const float4 *in, float4 *out) { out[threadIdx.x] = in[threadIdx.x]; }
