// check: --grid 1 --block 32 --arg p=zeros:256 --arg o=zeros:32
// verdict: MisalignedAccess
__global__ void k(const unsigned char *p, int *o) { o[threadIdx.x] = *(const int *)(p + threadIdx.x * 5 + 1); }
