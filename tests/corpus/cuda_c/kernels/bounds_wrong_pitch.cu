// launch: grid=1,1 block=8,8 a=zeros:48:float32 width=6 height=8
// truth: OutOfBounds
__global__ void pitched(float *a, int width, int height) {
    int x = threadIdx.x, y = threadIdx.y;
    if (x < height && y < height) a[y * height + x] = 1.0f;
}
