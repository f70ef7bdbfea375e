// launch: grid=2,2 block=8,8 a=zeros:196:float32 width=14
// truth: OutOfBounds
__global__ void square(float *a, int width) {
    int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    a[y * width + x] = 1.0f;
}
