// launch: grid=8 block=32 lock=zeros:1:int32 total=zeros:1:int32
// truth: clean
__global__ void locked(int *lock, volatile int *total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *total = *total + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
