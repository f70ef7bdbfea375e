// check: --grid 4 --block 1 --arg next=zeros:1 --arg serving=zeros:1 --arg total=zeros:1
// verdict: DataRace
__global__ void t(unsigned *next, volatile unsigned *serving, int *total) {
  unsigned my = atomicAdd(next, 1u);
  while (*serving != my) {}
  __threadfence(); *serving = my + 1; __threadfence(); *total += 1;
}
