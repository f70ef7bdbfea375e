// check: --grid 1 --block 32 --arg o=zeros:32
// verdict: clean
__global__ void k(int *o) { int sum = 0; for (int i = 0; i < 4; i++) { int x; if (i & 1) x = 5; else x = 4; float v[3]; for (int j = 0; j < 3; j++) v[j] = j * x; sum += x + v[i % 3]; } o[threadIdx.x] = sum; }
