// launch: grid=2,2 block=4,4 a=arange:221:float32 width=17 height=13
// truth: clean
__global__ void scaled(float *a, int width, int height) {
    for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += gridDim.y * blockDim.y)
        for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < width; x += gridDim.x * blockDim.x)
            a[y * width + x] = a[y * width + x] * 2.0f + x;
}
