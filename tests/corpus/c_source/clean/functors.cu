// Operators as template arguments, a lambda, and a pointer to a function.
struct Plus { template <class T> __device__ T operator()(T a, T b) const { return a + b; } };
struct Larger { template <class T> __device__ T operator()(T a, T b) const { return a > b ? a : b; } };

__device__ int twice(int v) { return 2 * v; }
__device__ int squared(int v) { return v * v; }

template <class Op, class T, int N>
__device__ T folded(const T (&values)[N], Op op, T first)
{
    T result = first;
    for (const T &value : values)
        result = op(result, value);
    return result;
}

extern "C" __global__ void functors(const int *in, int *out)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int values[5];
    for (int j = 0; j < 5; ++j)
        values[j] = in[t * 5 + j] - 30;
    int shift = t % 3;
    auto shifted = [=](int v) { return v + shift; };
    int (*act)(int) = t % 2 ? twice : squared;
    out[3 * t] = folded(values, Plus(), 0);
    out[3 * t + 1] = folded(values, Larger(), -1000);
    out[3 * t + 2] = act(shifted(values[0]));
}
