// launch: grid=2 block=64 a=2.5 x=arange:1000:float32 y=ones:1000:float32 n=1000
// truth: clean
extern "C" __global__ void saxpy(float a, const float *__restrict__ x, float *__restrict__ y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
