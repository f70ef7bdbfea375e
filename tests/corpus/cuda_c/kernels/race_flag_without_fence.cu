// launch: grid=1 block=64 out=zeros:1:int32
// truth: DataRace
__global__ void flagged(int *out) {
    __shared__ volatile int data, flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = 42;
        flag = 1;
    } else if (threadIdx.x == 32) {
        while (flag == 0) {}
        *out = data;
    }
}
