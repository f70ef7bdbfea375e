// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
struct P { int keys[4]; int count; };
__global__ void k(int *o) { P p; p.count = 4; for (int i = 0; i < 4; i++) p.keys[i] = i; 
  int at = threadIdx.x & 3; o[threadIdx.x] = p.keys[at] + p.count; }
