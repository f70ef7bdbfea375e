// launch: grid=6 block=32 next=zeros:1:uint32 serving=zeros:1:uint32 log=zeros:6:int32
// truth: clean
__global__ void tickets(unsigned *next, unsigned *serving, volatile int *log) {
    if (threadIdx.x == 0) {
        unsigned mine = atomicAdd(next, 1u);
        while (atomicAdd(serving, 0u) != mine) {}
        __threadfence();
        log[mine] = mine ? log[mine - 1] + 1 : 1;
        __threadfence();
        atomicAdd(serving, 1u);
    }
}
