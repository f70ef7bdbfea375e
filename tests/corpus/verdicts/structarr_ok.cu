// check: --grid 1 --block 16 --arg o=zeros:16
// verdict: clean
struct V { float v[3]; __device__ float &operator[](int i) { return v[i]; } };
struct N { int c[2][2]; int n; int data[1]; };
__global__ void k(int *o) { V a[4]; for (int i = 0; i < 4; i++) for (int j = 0; j < 3; j++) a[i][j] = i + j; __shared__ N s; if (threadIdx.x == 0) { for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) s.c[i][j] = i; s.n = 1; s.data[0] = 4; } __syncthreads(); o[threadIdx.x] = a[threadIdx.x & 3][2] + s.c[threadIdx.x & 1][1] + s.data[s.n - 1]; }
