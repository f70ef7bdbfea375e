// launch: grid=1 block=64 in=arange:64:float32 out=zeros:64:float32
// truth: OutOfBounds
__global__ void halo(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x] + in[threadIdx.x + 1]; }
