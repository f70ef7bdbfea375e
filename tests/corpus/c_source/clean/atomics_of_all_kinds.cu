// Every atomic function, on results that do not depend on the order.
__global__ void atomics_of_all_kinds(const int *in, int *r, unsigned *u, float *f, unsigned long long *w)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i];
    atomicAdd(&r[0], v);
    atomicSub(&r[1], v);
    atomicMax(&r[2], v);
    atomicMin(&r[3], -v);
    atomicAnd(&r[4], v | 5);
    atomicOr(&r[5], v);
    atomicXor(&r[6], v);
    atomicInc(&u[0], 9u);
    atomicAdd(&f[0], 0.25f * (v % 8));
    atomicAdd(&w[0], 1ull << (v % 40));
    atomicExch(&u[1], 77u);
}
