// check: --grid 1 --block 16 --arg d=arange:16 --arg o=zeros:16
// verdict: clean
__global__ void k(const int *d, int *o) { int v = d[threadIdx.x]; o[threadIdx.x] = v ? 100 / v + 100 % v : 0; }
