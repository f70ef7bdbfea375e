// launch: grid=1 block=32 out=zeros:32:float32
// truth: clean
struct Particle { float x; int id; short kind; };
__global__ void particles(float *out) {
    __shared__ Particle held[32];
    Particle one = {threadIdx.x * 0.5f, int(threadIdx.x), short(threadIdx.x % 3)};
    held[threadIdx.x] = one;
    __syncthreads();
    const Particle &other = held[31 - threadIdx.x];
    out[threadIdx.x] = other.x + other.id + other.kind;
}
