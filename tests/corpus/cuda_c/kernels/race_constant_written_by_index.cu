// launch: grid=1 block=64 slots=arange:64:int32 out=zeros:32:int32
// truth: DataRace
__global__ void collide(const int *slots, int *out) { out[slots[threadIdx.x] % 32] = threadIdx.x; }
