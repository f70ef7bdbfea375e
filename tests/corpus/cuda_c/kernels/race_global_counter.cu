// launch: grid=2 block=32 counter=zeros:1:int32
// truth: DataRace
__global__ void counted(int *counter) { counter[0] = counter[0] + 1; }
