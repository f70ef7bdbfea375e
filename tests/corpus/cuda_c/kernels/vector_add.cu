// launch: grid=4 block=64 a=arange:250:float32 b=ones:250:float32 c=zeros:250:float32 n=250
// truth: clean
__global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
