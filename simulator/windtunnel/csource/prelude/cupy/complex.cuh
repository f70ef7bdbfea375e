/* Complex numbers of CuPy: a template with the operators and functions of thrust::complex. */
#pragma once
#include "../cuda.h"
namespace thrust {
template <typename __wt_T> struct complex {
  __wt_T re, im;
  __host__ __device__ complex() : re(0), im(0) {}
  __host__ __device__ complex(__wt_T r) : re(r), im(0) {}
  __host__ __device__ complex(__wt_T r, __wt_T i) : re(r), im(i) {}
  template <typename __wt_U> __host__ __device__ complex(const complex<__wt_U> &z) : re((__wt_T)z.re), im((__wt_T)z.im) {}
  __host__ __device__ __wt_T real() const { return re; }
  __host__ __device__ __wt_T imag() const { return im; }
  __host__ __device__ void real(__wt_T r) { re = r; }
  __host__ __device__ void imag(__wt_T i) { im = i; }
  __host__ __device__ complex<__wt_T> &operator+=(const complex<__wt_T> &z) { re += z.re; im += z.im; return *this; }
  __host__ __device__ complex<__wt_T> &operator-=(const complex<__wt_T> &z) { re -= z.re; im -= z.im; return *this; }
  __host__ __device__ complex<__wt_T> &operator*=(const complex<__wt_T> &z) {
    __wt_T r = re * z.re - im * z.im; im = re * z.im + im * z.re; re = r; return *this;
  }
  __host__ __device__ complex<__wt_T> &operator/=(const complex<__wt_T> &z) {
    __wt_T d = z.re * z.re + z.im * z.im, r = (re * z.re + im * z.im) / d; im = (im * z.re - re * z.im) / d; re = r;
    return *this;
  }
};
#define __WT_CZ template <typename __wt_T> __host__ __device__ inline
__WT_CZ complex<__wt_T> operator+(const complex<__wt_T> &a, const complex<__wt_T> &b) { return complex<__wt_T>(a.re + b.re, a.im + b.im); }
__WT_CZ complex<__wt_T> operator+(const complex<__wt_T> &a, const __wt_T &b) { return complex<__wt_T>(a.re + b, a.im); }
__WT_CZ complex<__wt_T> operator+(const __wt_T &a, const complex<__wt_T> &b) { return complex<__wt_T>(a + b.re, b.im); }
__WT_CZ complex<__wt_T> operator-(const complex<__wt_T> &a, const complex<__wt_T> &b) { return complex<__wt_T>(a.re - b.re, a.im - b.im); }
__WT_CZ complex<__wt_T> operator-(const complex<__wt_T> &a, const __wt_T &b) { return complex<__wt_T>(a.re - b, a.im); }
__WT_CZ complex<__wt_T> operator-(const __wt_T &a, const complex<__wt_T> &b) { return complex<__wt_T>(a - b.re, -b.im); }
__WT_CZ complex<__wt_T> operator-(const complex<__wt_T> &a) { return complex<__wt_T>(-a.re, -a.im); }
__WT_CZ complex<__wt_T> operator*(const complex<__wt_T> &a, const complex<__wt_T> &b) {
  return complex<__wt_T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
__WT_CZ complex<__wt_T> operator*(const complex<__wt_T> &a, const __wt_T &b) { return complex<__wt_T>(a.re * b, a.im * b); }
__WT_CZ complex<__wt_T> operator*(const __wt_T &a, const complex<__wt_T> &b) { return complex<__wt_T>(a * b.re, a * b.im); }
__WT_CZ complex<__wt_T> operator/(const complex<__wt_T> &a, const complex<__wt_T> &b) {
  __wt_T d = b.re * b.re + b.im * b.im;
  return complex<__wt_T>((a.re * b.re + a.im * b.im) / d, (a.im * b.re - a.re * b.im) / d);
}
__WT_CZ complex<__wt_T> operator/(const complex<__wt_T> &a, const __wt_T &b) { return complex<__wt_T>(a.re / b, a.im / b); }
__WT_CZ complex<__wt_T> operator/(const __wt_T &a, const complex<__wt_T> &b) { return complex<__wt_T>(a) / b; }
__WT_CZ bool operator==(const complex<__wt_T> &a, const complex<__wt_T> &b) { return a.re == b.re && a.im == b.im; }
__WT_CZ bool operator!=(const complex<__wt_T> &a, const complex<__wt_T> &b) { return !(a == b); }
__WT_CZ __wt_T abs(const complex<__wt_T> &z) { return hypot(z.re, z.im); }
__WT_CZ __wt_T arg(const complex<__wt_T> &z) { return atan2(z.im, z.re); }
__WT_CZ __wt_T norm(const complex<__wt_T> &z) { return z.re * z.re + z.im * z.im; }
__WT_CZ complex<__wt_T> conj(const complex<__wt_T> &z) { return complex<__wt_T>(z.re, -z.im); }
__WT_CZ complex<__wt_T> polar(const __wt_T &r, const __wt_T &t) { return complex<__wt_T>(r * cos(t), r * sin(t)); }
__WT_CZ complex<__wt_T> exp(const complex<__wt_T> &z) { return polar(::exp(z.re), z.im); }
__WT_CZ complex<__wt_T> log(const complex<__wt_T> &z) { return complex<__wt_T>(::log(abs(z)), arg(z)); }
__WT_CZ complex<__wt_T> sqrt(const complex<__wt_T> &z) { return polar(::sqrt(abs(z)), arg(z) / 2); }
#undef __WT_CZ
}
using thrust::complex;
using thrust::abs;
using thrust::arg;
using thrust::norm;
using thrust::conj;
using thrust::polar;
using thrust::exp;
using thrust::log;
using thrust::sqrt;
