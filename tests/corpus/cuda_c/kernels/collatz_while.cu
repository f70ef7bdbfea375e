// launch: grid=1 block=64 out=zeros:64:int32
// truth: clean
__device__ __noinline__ int steps(unsigned long long n) {
    int count = 0;
    while (n > 1) {
        n = n & 1 ? 3 * n + 1 : n >> 1;
        if (++count > 1000) return -1;
    }
    return count;
}
__global__ void collatz(int *out) { out[threadIdx.x] = steps(threadIdx.x + 1); }
