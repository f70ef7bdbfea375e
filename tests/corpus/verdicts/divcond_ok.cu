// check: --grid 1 --block 16 --arg d=arange:16 --arg o=zeros:16 --arg n=0
// verdict: clean
__global__ void k(const int *d, int *o, int n) { int v = d[threadIdx.x]; if (v != 0 && 100 % v == 0) o[threadIdx.x] = v / 2; if (n) o[0] = 3 / n; o[threadIdx.x] += n ? threadIdx.x / n : 1; o[threadIdx.x] /= blockDim.x; float f = 1.0f / v; if (f > 2.0f) o[threadIdx.x]++; }
