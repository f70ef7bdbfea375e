// launch: grid=2 block=1 data=zeros:1:int32 flag=zeros:1:int32 out=zeros:1:int32
// truth: clean
__global__ void handover(volatile int *data, int *flag, int *out) {
    if (blockIdx.x == 0) {
        *data = 42;
        __threadfence();
        atomicExch(flag, 1);
    } else {
        while (atomicAdd(flag, 0) == 0) {}
        __threadfence();
        *out = *data;
    }
}
