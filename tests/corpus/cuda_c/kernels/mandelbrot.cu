// launch: grid=2,2 block=8,8 out=zeros:256:int32 side=16 limit=60
// truth: clean
__global__ void mandelbrot(int *out, int side, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= side || py >= side) return;
    double cx = -2.0 + 3.0 * px / side, cy = -1.5 + 3.0 * py / side, x = 0, y = 0;
    int n = 0;
    while (n < limit && x * x + y * y <= 4.0) {
        double next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        ++n;
    }
    out[py * side + px] = n;
}
