// check: --grid 1 --block 64 --arg n=100 --arg o=zeros:100
// verdict: clean
__global__ void k(int *o, int n) { for (int j = 0; j < n; j += 64) { int i = j + threadIdx.x; if (i < n) o[i] = i; __syncthreads(); } }
