// launch: grid=8 block=32 lock=zeros:1:int32 total=zeros:1:int32
// truth: DataRace
__global__ void unfenced(int *lock, int *total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        total[0] = total[0] + 1;
        atomicExch(lock, 0);
    }
}
