// Iterates z = z * z + c.
struct Complex {
    float re, im;
    __device__ Complex() {}
    __device__ Complex(float re, float im) : re(re), im(im) {}
    __device__ Complex operator*(const Complex &o) const { return Complex(re * o.re - im * o.im, re * o.im + im * o.re); }
    __device__ Complex operator+(const Complex &o) const { return Complex(re + o.re, im + o.im); }
    __device__ float norm() const { return re * re + im * im; }
};

__global__ void complex_power(const float *re, const float *im, int *steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Complex c(re[i] * 4.0f - 2.0f, im[i] * 4.0f - 2.0f), z;
    z.re = 0.0f;
    int k = 0;
    for (; k < 20 && z.norm() < 4.0f; ++k)
        z = z * z + c;
    steps[i] = k;
}
