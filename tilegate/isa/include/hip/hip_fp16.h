// Half precision: `_Float16` is the type that generated kernels compute with; `half2` carries two of them.
#pragma once
#include <hip/hip_runtime.h>

struct alignas(4) half2 {
  _Float16 x, y;
};
using __half2 = half2;

TG_DEVICE half2 operator+(half2 a, half2 b) { return {static_cast<_Float16>(a.x + b.x), static_cast<_Float16>(a.y + b.y)}; }
TG_DEVICE half2 operator-(half2 a, half2 b) { return {static_cast<_Float16>(a.x - b.x), static_cast<_Float16>(a.y - b.y)}; }
TG_DEVICE half2 operator*(half2 a, half2 b) { return {static_cast<_Float16>(a.x * b.x), static_cast<_Float16>(a.y * b.y)}; }
TG_DEVICE half2 operator/(half2 a, half2 b) { return {static_cast<_Float16>(a.x / b.x), static_cast<_Float16>(a.y / b.y)}; }
TG_DEVICE half2 __hadd2(half2 a, half2 b) { return a + b; }
TG_DEVICE half2 __hsub2(half2 a, half2 b) { return a - b; }
TG_DEVICE half2 __hmul2(half2 a, half2 b) { return a * b; }
TG_DEVICE half2 __hfma2(half2 a, half2 b, half2 c) {
  return {__builtin_elementwise_fma(a.x, b.x, c.x), __builtin_elementwise_fma(a.y, b.y, c.y)};
}
TG_DEVICE float __half2float(_Float16 value) { return static_cast<float>(value); }
TG_DEVICE _Float16 __float2half(float value) { return static_cast<_Float16>(value); }
TG_DEVICE half2 __floats2half2_rn(float x, float y) { return {static_cast<_Float16>(x), static_cast<_Float16>(y)}; }
TG_DEVICE float __low2float(half2 value) { return static_cast<float>(value.x); }
TG_DEVICE float __high2float(half2 value) { return static_cast<float>(value.y); }
