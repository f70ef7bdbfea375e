// launch: grid=1 block=64 data=arange:65:int32
// truth: DataRace
__global__ void shifted(int *data) { data[threadIdx.x] = data[threadIdx.x + 1]; }
