// bfloat16 as a 16-bit pattern. Conversion from float rounds to nearest even in integer arithmetic and keeps NaNs quiet,
// as ROCm's type does on every chip; the other direction is a shift.
#pragma once
#include <hip/hip_runtime.h>

struct hip_bfloat16 {
  uint16_t data;

  hip_bfloat16() = default;
  explicit __device__ __forceinline__ hip_bfloat16(float value) : data(round(value)) {}
  __device__ __forceinline__ operator float() const {
    return __builtin_bit_cast(float, static_cast<uint32_t>(data) << 16);
  }

private:
  static __device__ __forceinline__ uint16_t round(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if (~bits & 0x7f800000u) {
      bits += 0x7fffu + ((bits >> 16) & 1u);
    } else if (bits & 0xffffu) {
      bits |= 0x10000u;  // a NaN whose payload would be cut off must not become infinity
    }
    return static_cast<uint16_t>(bits >> 16);
  }
};

TG_DEVICE hip_bfloat16 operator+(hip_bfloat16 a, hip_bfloat16 b) { return hip_bfloat16(float(a) + float(b)); }
TG_DEVICE hip_bfloat16 operator-(hip_bfloat16 a, hip_bfloat16 b) { return hip_bfloat16(float(a) - float(b)); }
TG_DEVICE hip_bfloat16 operator*(hip_bfloat16 a, hip_bfloat16 b) { return hip_bfloat16(float(a) * float(b)); }
TG_DEVICE hip_bfloat16 operator/(hip_bfloat16 a, hip_bfloat16 b) { return hip_bfloat16(float(a) / float(b)); }
TG_DEVICE hip_bfloat16 operator-(hip_bfloat16 a) {
  a.data ^= 0x8000u;
  return a;
}
TG_DEVICE hip_bfloat16 &operator+=(hip_bfloat16 &a, hip_bfloat16 b) { return a = a + b; }
TG_DEVICE hip_bfloat16 &operator-=(hip_bfloat16 &a, hip_bfloat16 b) { return a = a - b; }
TG_DEVICE hip_bfloat16 &operator*=(hip_bfloat16 &a, hip_bfloat16 b) { return a = a * b; }
TG_DEVICE hip_bfloat16 &operator/=(hip_bfloat16 &a, hip_bfloat16 b) { return a = a / b; }
TG_DEVICE bool operator<(hip_bfloat16 a, hip_bfloat16 b) { return float(a) < float(b); }
TG_DEVICE bool operator>(hip_bfloat16 a, hip_bfloat16 b) { return float(a) > float(b); }
TG_DEVICE bool operator<=(hip_bfloat16 a, hip_bfloat16 b) { return float(a) <= float(b); }
TG_DEVICE bool operator>=(hip_bfloat16 a, hip_bfloat16 b) { return float(a) >= float(b); }
TG_DEVICE bool operator==(hip_bfloat16 a, hip_bfloat16 b) { return float(a) == float(b); }
TG_DEVICE bool operator!=(hip_bfloat16 a, hip_bfloat16 b) { return float(a) != float(b); }
TG_DEVICE float __bfloat162float(hip_bfloat16 value) { return float(value); }
TG_DEVICE hip_bfloat16 __float2bfloat16(float value) { return hip_bfloat16(value); }
