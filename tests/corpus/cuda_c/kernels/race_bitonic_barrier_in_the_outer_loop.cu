// launch: grid=1 block=64 data=arange:64:uint32
// truth: DataRace
__global__ void bitonic(unsigned *data) {
    __shared__ unsigned held[64];
    unsigned t = threadIdx.x;
    held[t] = data[t] * 2654435761u;
    __syncthreads();
    for (unsigned k = 2; k <= 64; k <<= 1) {
        for (unsigned j = k >> 1; j > 0; j >>= 1) {
            unsigned other = t ^ j;
            if (other > t && (held[t] > held[other]) == ((t & k) == 0)) {
                unsigned kept = held[t];
                held[t] = held[other];
                held[other] = kept;
            }
        }
        __syncthreads();
    }
    data[t] = held[t];
}
