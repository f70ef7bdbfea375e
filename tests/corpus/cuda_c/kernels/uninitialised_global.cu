// launch: grid=1 block=32 a=empty:32:float32 out=zeros:32:float32
// truth: UninitializedRead
__global__ void plain(const float *a, float *out) { out[threadIdx.x] = a[threadIdx.x] + 1.0f; }
