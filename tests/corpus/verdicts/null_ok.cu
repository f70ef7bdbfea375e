// check: --grid 1 --block 32 --arg a=0 --arg o=zeros:32
// verdict: clean
__global__ void k(const int *a, int *o) { o[threadIdx.x] = a ? a[threadIdx.x] : 7; }
