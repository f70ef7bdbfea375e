// Small matrices as a class template with inheritance and references.
template <int R, int C>
struct Matrix {
    float m[R][C];
    __device__ float &operator()(int r, int c) { return m[r][c]; }
    __device__ const float &operator()(int r, int c) const { return m[r][c]; }
};

struct Rotation : Matrix<2, 2> {
    __device__ explicit Rotation(float c, float s)
    {
        m[0][0] = m[1][1] = c;
        m[0][1] = -s;
        m[1][0] = s;
    }
};

template <int R, int K, int C>
__device__ Matrix<R, C> product(const Matrix<R, K> &a, const Matrix<K, C> &b)
{
    Matrix<R, C> p;
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) {
            p(r, c) = 0.0f;
            for (int k = 0; k < K; ++k)
                p(r, c) += a(r, k) * b(k, c);
        }
    return p;
}

__global__ void fixed_matrix(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Rotation turn(in[i] * 0.01f, 0.3f);
    Matrix<2, 3> points;
    for (int c = 0; c < 6; ++c)
        points.m[c / 3][c % 3] = in[i] + c;
    Matrix<2, 3> turned = product(turn, points);
    for (int c = 0; c < 6; ++c)
        out[6 * i + c] = turned(c / 3, c % 3);
}
