/* Random numbers of cuRAND: the interface, with a generator of our own, so the numbers are others than cuRAND's. */
#pragma once
#include "cuda.h"
struct curandStateXORWOW { unsigned long long at; };
typedef curandStateXORWOW curandState; typedef curandStateXORWOW curandState_t; typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandStatePhilox4_32_10_t; typedef curandStateXORWOW curandStateMRG32k3a; typedef curandStateXORWOW curandStateMRG32k3a_t;
__WT_D__ unsigned __wt_random(unsigned long long at) {
  unsigned long long z = at * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull; z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (unsigned)((z ^ (z >> 31)) >> 32);
}
__WT_D__ void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, curandStateXORWOW *s) {
  s->at = seed * 0xD1342543DE82EF95ull + (sequence << 32) + offset;
}
__WT_D__ void skipahead(unsigned long long n, curandStateXORWOW *s) { s->at += n; }
__WT_D__ unsigned curand(curandStateXORWOW *s) { unsigned long long at = s->at; s->at = at + 1; return __wt_random(at); }
__WT_D__ float curand_uniform(curandStateXORWOW *s) { return ((curand(s) >> 8) + 1) * (1.0f / 16777216.0f); }
__WT_D__ double curand_uniform_double(curandStateXORWOW *s) { return (curand(s) + 1.0) * (1.0 / 4294967296.0); }
__WT_D__ float curand_normal(curandStateXORWOW *s) {
  float u = curand_uniform(s), v = curand_uniform(s);
  return sqrtf(-2.0f * logf(u)) * cosf(6.283185307179586f * v);
}
__WT_D__ double curand_normal_double(curandStateXORWOW *s) {
  double u = curand_uniform_double(s), v = curand_uniform_double(s);
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
__WT_D__ float2 curand_normal2(curandStateXORWOW *s) { float x = curand_normal(s), y = curand_normal(s); return make_float2(x, y); }
__WT_D__ float curand_log_normal(curandStateXORWOW *s, float mean, float deviation) { return expf(mean + deviation * curand_normal(s)); }
__WT_D__ uint4 curand4(curandStateXORWOW *s) {
  unsigned a = curand(s), b = curand(s), c = curand(s), d = curand(s);
  return make_uint4(a, b, c, d);
}
__WT_D__ float4 curand_uniform4(curandStateXORWOW *s) {
  float a = curand_uniform(s), b = curand_uniform(s), c = curand_uniform(s), d = curand_uniform(s);
  return make_float4(a, b, c, d);
}
