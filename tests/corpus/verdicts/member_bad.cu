// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: UninitializedRead
struct P { int a, b; };
__global__ void k(int *o) { __shared__ P s[32]; P p; p.a = 3; s[threadIdx.x] = p; __syncthreads(); P q = s[31 - threadIdx.x]; o[threadIdx.x] = q.a + q.b; }
