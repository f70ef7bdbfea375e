// launch: grid=4 block=64 a=arange:500:float64 b=ones:500:float64 out=zeros:1:float64 n=500
// truth: clean
__global__ void dot(const double *a, const double *b, double *out, int n) {
    __shared__ double held[64];
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += a[i] * b[i];
    held[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 32; step > 0; step /= 2) {
        if (threadIdx.x < step) held[threadIdx.x] += held[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, held[0]);
}
