// check: --grid 2 --block 1 --arg data=zeros:1 --arg flag=zeros:1 --arg out=zeros:1
// verdict: DataRace
__global__ void f(int *data, int *flag, int *out) {
  if (blockIdx.x == 0) { atomicExch(flag, 1); __threadfence(); *data = 42; }
  else { while (atomicAdd(flag, 0) == 0) {} __threadfence(); *out = *data; }
}
