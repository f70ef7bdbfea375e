// check: --grid 1 --block 64 --arg d=random:64
// verdict: DataRace
__global__ void k(int *d) { int i = threadIdx.x; if (i < 63) d[i] = d[i + 1]; }
