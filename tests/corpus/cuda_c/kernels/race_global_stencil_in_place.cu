// launch: grid=2 block=64 a=arange:128:float32 n=128
// truth: DataRace
__global__ void in_place(float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) a[i] = 0.5f * (a[i - 1] + a[i + 1]);
}
