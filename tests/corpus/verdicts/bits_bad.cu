// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
struct B { unsigned a : 4, b : 4, c : 24; };
__global__ void k(int *o) { B x; x.a = threadIdx.x; x.b = 2; o[threadIdx.x] = x.a + x.c; }
