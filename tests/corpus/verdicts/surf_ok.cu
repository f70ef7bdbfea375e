// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
__global__ void k(cudaSurfaceObject_t s, int *o) { int v; surf1Dread(&v, s, threadIdx.x * 4); surf1Dwrite(v + 1, s, threadIdx.x * 4); o[threadIdx.x] = v; }
