// launch: grid=1 block=128 a=arange:100:int32 n=100
// truth: OutOfBounds
__global__ void guarded(int *a, int n) {
    int i = threadIdx.x;
    if (i <= n) a[i] += 1;
}
