// check: --grid 1 --block 64 --arg in=random:64 --arg o=zeros:64 --arg n=50
// verdict: clean
__device__ int clampi(int v, int n) { if (v < 0) return 0; if (v >= n) return n - 1; return v; }
__global__ void k(const int *in, int *o, int n) { int i = threadIdx.x; if (i >= n) return; int j = clampi(i - 3, n); __syncwarp(); o[i] = in[j]; }
