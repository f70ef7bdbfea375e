// launch: grid=1 block=64 in=arange:64:uint8 out=zeros:64:uint8
// truth: clean
__global__ void bytes(const unsigned char *in, unsigned char *out) {
    unsigned word = in[threadIdx.x] * 0x01010101u;
    out[threadIdx.x] = __byte_perm(word, ~word, 0x3715) ^ (word >> 5) ^ __funnelshift_l(word, 7u, 3);
}
