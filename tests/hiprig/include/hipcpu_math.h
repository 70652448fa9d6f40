// Arithmetic of kernels, and clocks.
#pragma once
#include <cmath>
#include <cstring>
#include <ctime>

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }

template <class To, class From>
static inline To hipcpu_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __int_as_float(int x) { return hipcpu_bits<float>(x); }
static inline int __float_as_int(float x) { return hipcpu_bits<int>(x); }
static inline double __longlong_as_double(long long x) { return hipcpu_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return hipcpu_bits<long long>(x); }

static inline long long __float2ll_rn(float x) { return llrintf(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __fdividef(a, b) ((a) / (b))
#define __ldg(address) (*(address))

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
using std::signbit;

static inline long long clock64() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}
static inline long long wall_clock64() { return clock64(); }
#define clock() clock64()

static inline void __nanosleep(unsigned nanoseconds) {
  timespec time{nanoseconds / 1000000000u, (long)(nanoseconds % 1000000000u)};
  nanosleep(&time, nullptr);
}
