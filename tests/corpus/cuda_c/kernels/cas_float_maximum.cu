// launch: grid=2 block=64 in=arange:128:float32 out=zeros:1:float32
// truth: clean
__device__ void atomic_maximum(float *at, float value) {
    int *whole = reinterpret_cast<int *>(at), seen = *whole, before;
    do {
        before = seen;
        if (__int_as_float(before) >= value) break;
        seen = atomicCAS(whole, before, __float_as_int(value));
    } while (seen != before);
}
__global__ void maximum(const float *in, float *out) {
    atomic_maximum(out, in[blockIdx.x * blockDim.x + threadIdx.x] * 0.5f);
}
