// launch: grid=1 block=32 in=arange:32:int32 out=zeros:256:int32 wide=zeros:64:uint64
// truth: clean
__global__ void integers(const int *in, int *out, unsigned long long *wide) {
    int i = threadIdx.x, v = in[i] - 16;
    out[i] = v / 3;
    out[32 + i] = v % 3;
    out[64 + i] = v >> 1;
    out[96 + i] = (unsigned)v >> 28;
    out[128 + i] = (signed char)(v * 37);
    out[160 + i] = (unsigned short)(v * 4099);
    out[192 + i] = __mulhi(v * 100000, 300000) + __clz(i) + __ffs(i) + __brev(i) % 7;
    out[224 + i] = v < 3u;
    wide[i] = (unsigned long long)v * 0x9e3779b97f4a7c15ull;
    wide[32 + i] = __umul64hi(wide[i], 12345ull);
}
