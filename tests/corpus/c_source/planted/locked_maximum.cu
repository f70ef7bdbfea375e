// The largest number and where it is, behind a lock.
struct Best { float value; int place; };

__global__ void locked_maximum(const float *in, Best *best, int *lock, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            if (in[i] > best->value) {
                best->value = in[i];
                best->place = i;
            }
            atomicExch(lock, 0);
            done = true;
        }
    }
}
