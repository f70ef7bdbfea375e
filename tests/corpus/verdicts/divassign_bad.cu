// check: --grid 1 --block 16 --arg d=arange:16 --arg o=ones:16
// verdict: DivisionByZero
__global__ void k(const int *d, int *o) { o[threadIdx.x] /= d[threadIdx.x] - 3; }
