// How the matrix units of CDNA2 and CDNA3 round, as probed on the chips and published: Xie et al., "MMA-Sim: Bit-Accurate
// Reference Model of Tensor Cores and Matrix Cores", arXiv 2511.10909, and its reference model (github.com/microsoft/MMA-Sim,
// simulator/amd.py). CDNA4 (gfx950) is in neither; it is taken to round as CDNA3.
//
// CDNA3, half and bfloat16, 8 products at a time; 8-bit floats, 16: products are cut off at 24 bits below the largest
// exponent among them and added, 8-bit ones those of even and odd depth apart; that sum is rounded down at 31 bits and the
// addend at 24 bits below the larger exponent of the two; their sum is rounded to nearest float32.
// CDNA2, half and bfloat16, 4 products at a time: float32 products and sums in pairs, each rounded to nearest, subnormal
// inputs and results taken for 0.
#pragma once
#include <cmath>
#include <cstring>

#include "machine.h"

constexpr int kFraction = 24, kSumFraction = 31;

// The least exponent of a normal number: those below have it, too.
inline int least_exponent(TgElement type) {
  switch (type) {
    case TgElement::Half:
      return -14;
    case TgElement::Fp8Fnuz:
      return -7;
    case TgElement::Bf8Fnuz:
      return -15;
    case TgElement::Fp8Ocp:
      return -6;
    case TgElement::Bf8Ocp:
      return -14;
    default:
      return -126;
  }
}

inline int exponent_of(float value, int least) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) == 0) return -126;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127;
  return exponent < least ? least : exponent;
}

inline double power_of_two(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(1023 + exponent) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// c + the products of `count` elements of a, `stride` apart, and b.
inline float fused_products(const float *a, int stride, const int *exponents_a, const float *b, const int *exponents_b, int count,
                            bool bytes, float c) {
  double plain = c;
  bool above = false, below = false;
  int largest[2] = {-10000, -10000};
  for (int k = 0; k < count; ++k) {
    const double product = static_cast<double>(a[k * stride]) * b[k];
    plain += product;
    above |= product >= 0x1p128;
    below |= product <= -0x1p128;
    int &most = largest[bytes ? k % 2 : 0];
    const int exponent = exponents_a[k * stride] + exponents_b[k];
    most = exponent > most ? exponent : most;
  }
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  if (above || below) return above && below ? NAN : above ? INFINITY : -INFINITY;
  double sums[2] = {0, 0};
  const double scales[2] = {power_of_two(kFraction - largest[0]), bytes ? power_of_two(kFraction - largest[1]) : 0};
  for (int k = 0; k < count; ++k) {
    const int half = bytes ? k % 2 : 0;
    sums[half] += trunc(static_cast<double>(a[k * stride]) * b[k] * scales[half]);
  }
  int most = largest[0];
  double sum = sums[0];
  if (bytes) {
    most = largest[0] > largest[1] ? largest[0] : largest[1];
    sum = floor(ldexp(sums[0], largest[0] - most)) + floor(ldexp(sums[1], largest[1] - most));
  }
  const int exponent_c = exponent_of(c, -126), all = most > exponent_c ? most : exponent_c;
  sum = floor(ldexp(sum, kSumFraction - kFraction + most - all));
  const double addend = bytes && exponent_c < all - 25 ? 0 : floor(ldexp(static_cast<double>(c), kFraction - all));
  return static_cast<float>(ldexp(sum + ldexp(addend, kSumFraction - kFraction), all - kSumFraction));
}

// c + four products, in pairs.
inline float paired_products(const float *a, int stride, const float *b, int count, bool flush, float c) {
  const auto rounded = [flush](float value) { return flush && fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value; };
  float sum = rounded(c);
  for (int k = 0; k < count; k += 4) {
    float pairs[2];
    for (int pair = 0; pair < 2; ++pair) {
      const int at = k + 2 * pair;
      volatile float first = rounded(a[at * stride] * b[at]), second = rounded(a[(at + 1) * stride] * b[at + 1]);
      pairs[pair] = rounded(first + second);
    }
    sum = rounded(sum + rounded(pairs[0] + pairs[1]));
  }
  return sum;
}

// d += a * b, with a[k][row], b[column][k] and d[column][row].
template <int R, int K> void multiply_as_chip(const float *a, const float *b, float *d, const TgMatrix &shape, bool second_generation) {
  const bool bytes = shape.a != TgElement::Half && shape.a != TgElement::BFloat;
  const int together = bytes ? 16 : 8;
  int exponents_a[R * K], exponents_b[R * K];
  const int least_a = least_exponent(shape.a), least_b = least_exponent(shape.b);
  for (int i = 0; i < R * K; ++i) {
    exponents_a[i] = exponent_of(a[i], least_a);
    exponents_b[i] = exponent_of(b[i], least_b);
  }
  for (int column = 0; column < R; ++column)
    for (int row = 0; row < R; ++row) {
      float sum = d[column * R + row];
      if (second_generation) {
        sum = paired_products(a + row, R, b + column * K, K, true, sum);
      } else {
        for (int k = 0; k < K; k += together)
          sum = fused_products(a + k * R + row, R, exponents_a + k * R + row, b + column * K + k, exponents_b + column * K + k,
                               together < K ? together : K, bytes, sum);
      }
      d[column * R + row] = sum;
    }
}
