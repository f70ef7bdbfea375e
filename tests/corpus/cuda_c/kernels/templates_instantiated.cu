// launch: grid=1 block=32 a=arange:32:float32 out=zeros:32:float32
// truth: clean
template <typename T> struct Pair { T first, second; __device__ T sum() const { return first + second; } };
template <typename T, int N> __device__ T repeated(T x) { T s = 0; for (int i = 0; i < N; ++i) s += x; return s; }
template <typename T> __global__ void instantiated(const T *a, T *out) {
    Pair<T> p{a[threadIdx.x], repeated<T, 3>(a[threadIdx.x])};
    out[threadIdx.x] = p.sum();
}
template __global__ void instantiated<float>(const float *a, float *out);
__global__ void caller(const float *a, float *out) {
    Pair<float> p{a[threadIdx.x], repeated<float, 3>(a[threadIdx.x])};
    out[threadIdx.x] = p.sum();
}
