// Where an operand lies (AMD's matrix instruction calculator; ISA reference of the MI300, chapter 7). With R rows of A, R
// columns of B and n = R*depth/64 values a lane, lane l holds row l % R of A and column l % R of B, each at the depths
// n*(l/R) to n*(l/R)+n-1. Of C and D it holds column l % R; value v of it is in row
//     4*(l/R) + v                    16 x 16: 4 values
//     8*(v/4) + 4*(l/R) + v % 4      32 x 32: 16 values
//
// The product is computed transposed, column by column of D: then a lane's values of B, C and D lie side by side.
#include "matrix.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "memory.h"
#include "rendezvous.h"
#include "rounding.h"

namespace {
using Rounding = Launch::Rounding;
constexpr float kLeastNormal = 0x1p-126f, kLeastNormalHalf = 0x1p-14f;

// The operands of the instruction that a wave is about to execute. Those of Int8 lie in the same memory, a byte each.
struct Operands {
  alignas(64) float a[512];   // a[k][row]
  alignas(64) float b[512];   // b[column][k]
  alignas(64) float d[1024];  // d[column][row]; of Int8 as uint32_t
};
Operands operands[kMaxWaves];

float decode_fp8(uint8_t code, int mantissa, int bias, bool fnuz) {
  const int magnitude = code & 127, fraction = magnitude & ((1 << mantissa) - 1), exponent = magnitude >> mantissa;
  float value;
  if (fnuz && code == 0x80) return NAN;
  if (!fnuz && mantissa == 3 && magnitude == 127) return NAN;
  if (!fnuz && mantissa == 2 && magnitude >= 0x7c) {
    value = magnitude == 0x7c ? INFINITY : NAN;
  } else {
    value = exponent ? ldexpf(static_cast<float>((1 << mantissa) + fraction), exponent - bias - mantissa)
                     : ldexpf(static_cast<float>(fraction), 1 - bias - mantissa);
  }
  return code & 128 ? -value : value;
}

struct Fp8Tables {
  float values[4][256];  // in the order of TgElement
  Fp8Tables() {
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      values[0][code] = decode_fp8(byte, 3, 8, true);
      values[1][code] = decode_fp8(byte, 2, 16, true);
      values[2][code] = decode_fp8(byte, 3, 7, false);
      values[3][code] = decode_fp8(byte, 2, 15, false);
    }
  }
};

inline float flushed(float value, float least) { return fabsf(value) < least ? copysignf(0.0f, value) : value; }

__attribute__((noinline)) void widen_fp8(TgElement type, const void *from, float *to, int count) {
  static const Fp8Tables tables;
  const float *table = tables.values[static_cast<int>(type) - static_cast<int>(TgElement::Fp8Fnuz)];
  for (int i = 0; i < count; ++i) to[i] = table[static_cast<const uint8_t *>(from)[i]];
}

// The types of an instruction's operands, as far as the code for them differs.
enum class Kind { Half, BFloat, Float, Fp8 };

template <int count, Kind kind> inline __attribute__((always_inline)) void widen(TgElement type, const void *from, float *to) {
  typedef float Floats __attribute__((ext_vector_type(count)));
  if (kind == Kind::Half) {
    typedef _Float16 Halves __attribute__((ext_vector_type(count)));
    Halves halves;
    memcpy(&halves, from, sizeof halves);
    const Floats floats = __builtin_convertvector(halves, Floats);
    memcpy(to, &floats, sizeof floats);
  } else if (kind == Kind::BFloat) {
    typedef uint16_t Halves __attribute__((ext_vector_type(count)));
    typedef uint32_t Bits __attribute__((ext_vector_type(count)));
    Halves halves;
    memcpy(&halves, from, sizeof halves);
    const Bits bits = __builtin_convertvector(halves, Bits) << 16;
    memcpy(to, &bits, sizeof bits);
  } else if (kind == Kind::Float) {
    memcpy(to, from, sizeof(float) * count);
  } else {
    widen_fp8(type, from, to, count);
  }
  // gfx90a takes subnormal half and bfloat16 inputs for 0 and gives no subnormal results (PyTorch, "Numerical accuracy").
  if (kind != Kind::Float && machine.launch.flushes_subnormals) {
    const float least = kind == Kind::Half ? kLeastNormalHalf : kLeastNormal;
    for (int i = 0; i < count; ++i) to[i] = flushed(to[i], least);
  }
}

template <int R> inline unsigned row_of(unsigned lane, unsigned quad) { return 8 * quad + 4 * (lane / R); }  // of values 4*quad to 4*quad+3
template <int R> constexpr unsigned kQuads = R * R / kWave / 4;

template <int R> inline void bring_c(Operands &to, unsigned lane, const void *c) {
  for (unsigned quad = 0; quad < kQuads<R>; ++quad)
    memcpy(&to.d[lane % R * R + row_of<R>(lane, quad)], static_cast<const char *>(c) + 16 * quad, 16);
}

template <int R> inline void take_d(const Operands &from, unsigned lane, void *d) {
  for (unsigned quad = 0; quad < kQuads<R>; ++quad)
    memcpy(static_cast<char *>(d) + 16 * quad, &from.d[lane % R * R + row_of<R>(lane, quad)], 16);
}

// One function for each shape and type, with the parameters of tg_matrix, whose caller is theirs: each has a small frame.
#define TG_EXECUTE_PARAMETERS const TgMatrix *shape, const void *a, const void *b, const void *c, void *d

template <int R, int K, Kind kind> __attribute__((noinline)) void execute_floats(TG_EXECUTE_PARAMETERS) {
  constexpr unsigned values = R * K / kWave;
  Lane &self = *machine.running;
  settle_overwrites(self);
  self.matrix = shape;
  Operands &with = operands[self.wave];
  const unsigned lane = static_cast<unsigned>(self.lane), first = values * (lane / R), own = lane % R;
  float row[values];
  widen<values, kind>(shape->a, a, row);
  for (unsigned v = 0; v < values; ++v) with.a[(first + v) * R + own] = row[v];
  widen<values, kind>(shape->b, b, &with.b[own * K + first]);
  bring_c<R>(with, lane, c);
  arrive(self, Waiting::Matrix, TG_SITE());
  take_d<R>(with, lane, d);
}

template <int R, int K> __attribute__((noinline)) void execute_bytes(TG_EXECUTE_PARAMETERS) {
  constexpr size_t values = R * K / kWave;
  Lane &self = *machine.running;
  settle_overwrites(self);
  self.matrix = shape;
  Operands &with = operands[self.wave];
  const unsigned lane = static_cast<unsigned>(self.lane);
  const size_t at = lane % R * K + values * (lane / R);
  memcpy(reinterpret_cast<int8_t *>(with.a) + at, a, values);
  memcpy(reinterpret_cast<int8_t *>(with.b) + at, b, values);
  bring_c<R>(with, lane, c);
  arrive(self, Waiting::Matrix, TG_SITE());
  take_d<R>(with, lane, d);
}

template <int R, int K> void multiply_floats(Operands &with, const TgMatrix &shape, bool flush) {
  if (machine.launch.rounding == Rounding::Chip && shape.a != TgElement::Float) {
    multiply_as_chip<R, K>(with.a, with.b, with.d, shape, flush);
    return;
  }
  typedef float Rows __attribute__((ext_vector_type(R)));
  constexpr int together = R == 16 ? 4 : 2;  // columns whose sums stay in registers
  const Rounding rounding = machine.launch.rounding;
  for (int column = 0; column < R; column += together) {
    float *d = &with.d[column * R];
    const float *b = &with.b[column * K];
    if (rounding == Rounding::Fma || rounding == Rounding::Chip) {
      Rows sums[together];
      memcpy(sums, d, sizeof sums);
      for (int k = 0; k < K; ++k) {
        Rows factor;
        memcpy(&factor, &with.a[k * R], sizeof factor);
#pragma clang loop unroll(full)
        for (int i = 0; i < together; ++i) sums[i] = __builtin_elementwise_fma(factor, Rows(b[i * K + k]), sums[i]);
      }
      memcpy(d, sums, sizeof sums);
    } else {
      for (int i = 0; i < together * R; ++i) {
        const float *factors = &with.a[i % R], *others = b + i / R * K;
        if (rounding == Rounding::Exact) {
          double sum = d[i];
          for (int k = 0; k < K; ++k) sum += static_cast<double>(factors[k * R]) * others[k];
          d[i] = static_cast<float>(sum);
        } else {
          for (int k = 0; k < K; k += 4) {
            float sum = 0;
            for (int j = k; j < k + 4 && j < K; ++j) {
              const float product = factors[j * R] * others[j];
              sum = sum + product;
            }
            d[i] = flushed(d[i] + sum, kLeastNormal);
          }
        }
      }
    }
    if (flush)
      for (int i = 0; i < together * R; ++i) d[i] = flushed(d[i], kLeastNormal);
  }
}

template <int R, int K> void multiply_bytes(Operands &with) {
  const auto *a = reinterpret_cast<const int8_t *>(with.a), *b = reinterpret_cast<const int8_t *>(with.b);
  for (int column = 0; column < R; ++column)
    for (int row = 0; row < R; ++row) {
      uint32_t sum;  // wraps around, as the chip's sums do
      memcpy(&sum, &with.d[column * R + row], sizeof sum);
      for (int k = 0; k < K; ++k) sum += static_cast<uint32_t>(a[row * K + k] * b[column * K + k]);
      memcpy(&with.d[column * R + row], &sum, sizeof sum);
    }
}

// Calls `action` with the shape as constants. The headers declare no others.
template <typename Floats, typename Bytes>
inline __attribute__((always_inline)) void with_shape(const TgMatrix &shape, Floats floats, Bytes bytes) {
#define TG_SHAPE(action, R, K) action(std::integral_constant<int, R>{}, std::integral_constant<int, K>{})
  const bool small = shape.rows == 16;
  if (shape.a != TgElement::Int8) {
    if (small && shape.depth == 16) return TG_SHAPE(floats, 16, 16);
    if (small && shape.depth == 32) return TG_SHAPE(floats, 16, 32);
    if (small) return TG_SHAPE(floats, 16, 4);
    if (shape.depth == 8) return TG_SHAPE(floats, 32, 8);
    if (shape.depth == 16) return TG_SHAPE(floats, 32, 16);
    return TG_SHAPE(floats, 32, 2);
  }
  if (small && shape.depth == 16) return TG_SHAPE(bytes, 16, 16);
  if (small && shape.depth == 32) return TG_SHAPE(bytes, 16, 32);
  if (small) return TG_SHAPE(bytes, 16, 64);
  if (shape.depth == 8) return TG_SHAPE(bytes, 32, 8);
  if (shape.depth == 16) return TG_SHAPE(bytes, 32, 16);
  return TG_SHAPE(bytes, 32, 32);
#undef TG_SHAPE
}
}  // namespace

void multiply(const Wave &wave, const TgMatrix &shape) {
  Operands &with = operands[wave.first_thread / kWave];
  const bool flush = machine.launch.flushes_subnormals && shape.a != TgElement::Float;
  with_shape(
      shape, [&](auto R, auto K) { multiply_floats<R, K>(with, shape, flush); }, [&](auto R, auto K) { multiply_bytes<R, K>(with); });
}

extern "C" void tg_matrix(TG_EXECUTE_PARAMETERS) {
  void (*execute)(TG_EXECUTE_PARAMETERS);
  with_shape(
      *shape,
      [&](auto R, auto K) {
        execute = shape->a == TgElement::Half     ? execute_floats<R, K, Kind::Half>
                  : shape->a == TgElement::BFloat ? execute_floats<R, K, Kind::BFloat>
                  : shape->a == TgElement::Float  ? execute_floats<R, K, Kind::Float>
                                                  : execute_floats<R, K, Kind::Fp8>;
      },
      [&](auto R, auto K) { execute = execute_bytes<R, K>; });
  [[clang::musttail]] return execute(shape, a, b, c, d);
}
