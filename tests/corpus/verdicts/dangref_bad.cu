// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
struct A { int x, y; };
__device__ const A &make(int v) { A a; a.x = v; a.y = 2; const A *p = &a; return *p; }
__global__ void k(int *o) { const A &a = make(threadIdx.x); o[threadIdx.x] = a.x; }
