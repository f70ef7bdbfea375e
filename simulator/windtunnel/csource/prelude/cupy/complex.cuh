/* Complex numbers of CuPy: a template with the operators and functions of thrust::complex. */
#pragma once
#include "../cuda.h"
namespace thrust {
template <typename T> struct complex {
  T re, im;
  __host__ __device__ complex() : re(0), im(0) {}
  __host__ __device__ complex(T r) : re(r), im(0) {}
  __host__ __device__ complex(T r, T i) : re(r), im(i) {}
  template <typename U> __host__ __device__ complex(const complex<U> &z) : re((T)z.re), im((T)z.im) {}
  __host__ __device__ T real() const { return re; }
  __host__ __device__ T imag() const { return im; }
  __host__ __device__ void real(T r) { re = r; }
  __host__ __device__ void imag(T i) { im = i; }
  __host__ __device__ complex<T> &operator+=(const complex<T> &z) { re += z.re; im += z.im; return *this; }
  __host__ __device__ complex<T> &operator-=(const complex<T> &z) { re -= z.re; im -= z.im; return *this; }
  __host__ __device__ complex<T> &operator*=(const complex<T> &z) {
    T r = re * z.re - im * z.im; im = re * z.im + im * z.re; re = r; return *this;
  }
  __host__ __device__ complex<T> &operator/=(const complex<T> &z) {
    T d = z.re * z.re + z.im * z.im, r = (re * z.re + im * z.im) / d; im = (im * z.re - re * z.im) / d; re = r;
    return *this;
  }
};
#define __WT_CZ template <typename T> __host__ __device__ inline
__WT_CZ complex<T> operator+(const complex<T> &a, const complex<T> &b) { return complex<T>(a.re + b.re, a.im + b.im); }
__WT_CZ complex<T> operator+(const complex<T> &a, const T &b) { return complex<T>(a.re + b, a.im); }
__WT_CZ complex<T> operator+(const T &a, const complex<T> &b) { return complex<T>(a + b.re, b.im); }
__WT_CZ complex<T> operator-(const complex<T> &a, const complex<T> &b) { return complex<T>(a.re - b.re, a.im - b.im); }
__WT_CZ complex<T> operator-(const complex<T> &a, const T &b) { return complex<T>(a.re - b, a.im); }
__WT_CZ complex<T> operator-(const T &a, const complex<T> &b) { return complex<T>(a - b.re, -b.im); }
__WT_CZ complex<T> operator-(const complex<T> &a) { return complex<T>(-a.re, -a.im); }
__WT_CZ complex<T> operator*(const complex<T> &a, const complex<T> &b) {
  return complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
__WT_CZ complex<T> operator*(const complex<T> &a, const T &b) { return complex<T>(a.re * b, a.im * b); }
__WT_CZ complex<T> operator*(const T &a, const complex<T> &b) { return complex<T>(a * b.re, a * b.im); }
__WT_CZ complex<T> operator/(const complex<T> &a, const complex<T> &b) {
  T d = b.re * b.re + b.im * b.im;
  return complex<T>((a.re * b.re + a.im * b.im) / d, (a.im * b.re - a.re * b.im) / d);
}
__WT_CZ complex<T> operator/(const complex<T> &a, const T &b) { return complex<T>(a.re / b, a.im / b); }
__WT_CZ complex<T> operator/(const T &a, const complex<T> &b) { return complex<T>(a) / b; }
__WT_CZ bool operator==(const complex<T> &a, const complex<T> &b) { return a.re == b.re && a.im == b.im; }
__WT_CZ bool operator!=(const complex<T> &a, const complex<T> &b) { return !(a == b); }
__WT_CZ T abs(const complex<T> &z) { return hypot(z.re, z.im); }
__WT_CZ T arg(const complex<T> &z) { return atan2(z.im, z.re); }
__WT_CZ T norm(const complex<T> &z) { return z.re * z.re + z.im * z.im; }
__WT_CZ complex<T> conj(const complex<T> &z) { return complex<T>(z.re, -z.im); }
__WT_CZ complex<T> polar(const T &r, const T &t) { return complex<T>(r * cos(t), r * sin(t)); }
__WT_CZ complex<T> exp(const complex<T> &z) { return polar(::exp(z.re), z.im); }
__WT_CZ complex<T> log(const complex<T> &z) { return complex<T>(::log(abs(z)), arg(z)); }
__WT_CZ complex<T> sqrt(const complex<T> &z) { return polar(::sqrt(abs(z)), arg(z) / 2); }
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
