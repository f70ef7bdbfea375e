// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: DataRace
__global__ void k(cudaSurfaceObject_t s, int *o) { int v; surf1Dwrite((int)threadIdx.x, s, (threadIdx.x / 2) * 4); surf1Dread(&v, s, (31 - threadIdx.x) * 4); o[threadIdx.x] = v; }
