// launch: grid=1 block=64 in=arange:64:int32 out=zeros:256:uint32
// truth: clean
__global__ void votes(const int *in, unsigned *out) {
    int t = threadIdx.x, value = in[t];
    out[t] = __ballot_sync(0xffffffffu, value % 3 == 0);
    out[64 + t] = __any_sync(0xffffffffu, value == 40) + 2 * __all_sync(0xffffffffu, value < 40);
    out[128 + t] = __match_any_sync(0xffffffffu, value % 4);
    out[192 + t] = __popc(out[t] & ((1u << (t % 32)) - 1u)) + 100u * __shfl_xor_sync(0xffffffffu, value, 1);
}
