// launch: grid=2 block=64 a=arange:100:int32 n=100
// truth: clean
__global__ void early(int *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    a[i] = -a[i];
}
