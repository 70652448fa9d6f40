// Half precision: 16 bits in memory, float in arithmetic.
#pragma once
#include <cmath>
#include <cstring>

struct __half_raw {
  unsigned short x;
};

struct __half {
  unsigned short x;

  __half() = default;
  __half(float value) : x(bits_of(value)) {}
  __half(__half_raw raw) : x(raw.x) {}
  operator float() const { return value_of(x); }
  operator __half_raw() const { return __half_raw{x}; }

  // Rounds to nearest, ties to even.
  static unsigned short bits_of(float value) {
    constexpr unsigned infinity = 0x7c00;
    constexpr unsigned quiet = 0x200;
    constexpr unsigned float_infinity = 0x7f800000;
    constexpr unsigned rounds_to_infinity = 0x477ff000;
    constexpr unsigned least_normal = 0x38800000;
    constexpr unsigned exponent_difference = (127 - 15) << 23;
    constexpr float subnormals_in_one = 16777216.0f;
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned sign = bits >> 16 & 0x8000;
    unsigned magnitude = bits & 0x7fffffff;
    if (magnitude >= float_infinity) {
      return (unsigned short)(sign | infinity | (magnitude > float_infinity ? quiet : 0));
    }
    if (magnitude >= rounds_to_infinity) return (unsigned short)(sign | infinity);
    if (magnitude < least_normal) {
      float positive;
      memcpy(&positive, &magnitude, sizeof positive);
      return (unsigned short)(sign | (unsigned)lrintf(positive * subnormals_in_one));
    }
    unsigned rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (unsigned short)(sign | (rounded - exponent_difference) >> 13);
  }

  static float value_of(unsigned short half) {
    constexpr unsigned exponent_difference = 127 - 15;
    unsigned sign = (half & 0x8000u) << 16;
    unsigned exponent = half >> 10 & 31;
    unsigned fraction = half & 1023;
    unsigned bits;
    if (exponent == 31) {
      bits = sign | 0x7f800000 | fraction << 13;
    } else if (exponent != 0) {
      bits = sign | (exponent + exponent_difference) << 23 | fraction << 13;
    } else {
      float subnormal = (float)fraction * (1.0f / 16777216.0f);
      memcpy(&bits, &subnormal, sizeof bits);
      bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
};

typedef __half half;
static inline float __half2float(__half value) { return value; }
static inline __half __float2half(float value) { return __half(value); }
static inline __half __float2half_rn(float value) { return __half(value); }
static inline unsigned short __half_as_ushort(__half value) { return value.x; }
static inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
