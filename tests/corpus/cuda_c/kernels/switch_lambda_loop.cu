// launch: grid=1 block=32 out=zeros:32:int32
// truth: clean
enum class Kind : int { first, second = 5, third };
__global__ void switches(int *out) {
    int i = threadIdx.x, value = 0;
    auto scaled = [i](int by) { return i * by; };
    switch (i % 4) {
    case 0: value = scaled(3); break;
    case 1: value = 10;  // falls through
    case 2: value += scaled(2); break;
    default: value = -1;
    }
    do { value += int(Kind::third); } while (value < 0);
    for (int k = 0; ; ++k) {
        if (k == 3) continue;
        if (k > 5) break;
        value ^= k;
    }
    out[i] = value;
}
