// check: --grid 1 --block 32 --arg a=0 --arg o=zeros:32
// verdict: OutOfBounds
__global__ void k(const int *a, int *o) { o[threadIdx.x] = a[threadIdx.x]; }
