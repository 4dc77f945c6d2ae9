// 8-bit floats: four formats, converted by the chip where it has them (FNUZ on gfx942, OCP on gfx950), else in software.
//
// FNUZ: bias one higher, 0x80 is the only NaN, no infinity, no negative zero. OCP: e4m3 has no infinity, e5m2 has.
#pragma once
#include <hip/hip_runtime.h>

enum __hip_fp8_interpretation_t { __HIP_E4M3, __HIP_E5M2, __HIP_E4M3_FNUZ, __HIP_E5M2_FNUZ };
enum __hip_saturation_t { __HIP_NOSAT, __HIP_SATFINITE };
using __hip_fp8_storage_t = unsigned char;

template <__hip_fp8_interpretation_t Format> struct tg_fp8 {
  static constexpr bool fnuz = Format == __HIP_E4M3_FNUZ || Format == __HIP_E5M2_FNUZ;
  static constexpr bool e4m3 = Format == __HIP_E4M3 || Format == __HIP_E4M3_FNUZ;
  static constexpr int mantissa = e4m3 ? 3 : 2;
  static constexpr int bias = (e4m3 ? 7 : 15) + (fnuz ? 1 : 0);
  static constexpr unsigned largest = fnuz ? 0x7f : e4m3 ? 0x7e : 0x7b;  // the largest finite value, without its sign
  static constexpr unsigned nan = fnuz ? 0x80 : 0x7f;
#if defined(__gfx942__)
  static constexpr bool native = fnuz;
#elif defined(__gfx950__)
  static constexpr bool native = !fnuz;
#else
  static constexpr bool native = false;
#endif

  // Rounds to nearest even and saturates at the largest finite value; infinity does not, and is NaN where the format has none
  // (cast_to_f8_from_f32 of ROCm's amd_hip_fp8.h, which clamps only what is finite).
  static __device__ __forceinline__ unsigned char from_float(float value) {
#if defined(__gfx942__) || defined(__gfx950__)
    if constexpr (native) {
      const float limit = to_float(static_cast<unsigned char>(largest));
      const float kept = __builtin_isinf(value) || value != value ? value : __builtin_amdgcn_fmed3f(value, limit, -limit);
      const int packed = e4m3 ? __builtin_amdgcn_cvt_pk_fp8_f32(kept, kept, 0, false)
                              : __builtin_amdgcn_cvt_pk_bf8_f32(kept, kept, 0, false);
      return static_cast<unsigned char>(packed & 0xff);
    }
#endif
    return from_float_software(value);
  }

  static constexpr __device__ __forceinline__ unsigned char from_float_software(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const unsigned sign = (bits >> 24) & 0x80u;
    if (value != value) return static_cast<unsigned char>(nan);
    if (__builtin_isinf(value)) return static_cast<unsigned char>(fnuz ? nan : e4m3 ? nan | sign : 0x7c | sign);
    const int exponent = static_cast<int>((bits >> 23) & 0xff) - 127;
    const int lowest = 1 - bias;  // exponent of the smallest normal number, and of every subnormal one
    const int shift = 23 - mantissa + (exponent < lowest ? lowest - exponent : 0);
    if (exponent == -127 || shift > 24) return static_cast<unsigned char>(fnuz ? 0 : sign);
    const uint32_t significand = (bits & 0x7fffffu) | 0x800000u;
    const uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1), tie = 1u << (shift - 1);
    const uint32_t rounded = kept + (rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u);
    // A carry out of the mantissa lands in the exponent, where it belongs. A subnormal significand has no hidden bit.
    const int biased = exponent < lowest ? 0 : exponent + bias - 1;
    const int code = biased * (1 << mantissa) + static_cast<int>(rounded);
    const unsigned magnitude = code > static_cast<int>(largest) ? largest : static_cast<unsigned>(code);
    return static_cast<unsigned char>(magnitude == 0 && fnuz ? 0 : magnitude | sign);
  }

  static constexpr __device__ __forceinline__ float to_float_software(unsigned char code) {
    const unsigned magnitude = code & 0x7fu;
    if (fnuz ? code == nan : e4m3 ? magnitude == nan : magnitude > 0x7c) return __builtin_nanf("");
    float value = 0;
    const unsigned fraction = magnitude & ((1u << mantissa) - 1), biased = magnitude >> mantissa;
    if (!fnuz && !e4m3 && magnitude == 0x7c) {
      value = __builtin_huge_valf();
    } else if (biased == 0) {
      value = static_cast<float>(fraction) * power_of_two(1 - bias - mantissa);
    } else {
      value = __builtin_bit_cast(float, ((biased + 127 - bias) << 23) | (fraction << (23 - mantissa)));
    }
    return code & 0x80u ? -value : value;
  }
  static constexpr __device__ __forceinline__ float power_of_two(int exponent) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23);
  }
  static __device__ __forceinline__ float to_float(unsigned char code) {
#if defined(__gfx942__) || defined(__gfx950__)
    if constexpr (native) {
      return e4m3 ? __builtin_amdgcn_cvt_f32_fp8(code, 0) : __builtin_amdgcn_cvt_f32_bf8(code, 0);
    }
#endif
    return to_float_software(code);
  }
};

TG_DEVICE __hip_fp8_storage_t __hip_cvt_float_to_fp8(float value, __hip_saturation_t, __hip_fp8_interpretation_t format) {
  switch (format) {
  case __HIP_E4M3:
    return tg_fp8<__HIP_E4M3>::from_float(value);
  case __HIP_E5M2:
    return tg_fp8<__HIP_E5M2>::from_float(value);
  case __HIP_E4M3_FNUZ:
    return tg_fp8<__HIP_E4M3_FNUZ>::from_float(value);
  default:
    return tg_fp8<__HIP_E5M2_FNUZ>::from_float(value);
  }
}

#define TG_FP8(name, format)                                                                                           \
  struct __hip_fp8_##name {                                                                                            \
    __hip_fp8_storage_t __x;                                                                                           \
    __hip_fp8_##name() = default;                                                                                      \
    explicit __device__ __forceinline__ __hip_fp8_##name(float value) : __x(tg_fp8<format>::from_float(value)) {}      \
    __device__ __forceinline__ operator float() const { return tg_fp8<format>::to_float(__x); }                        \
  };                                                                                                                   \
  struct alignas(2) __hip_fp8x2_##name {                                                                               \
    unsigned short __x;                                                                                                \
  };                                                                                                                   \
  struct alignas(4) __hip_fp8x4_##name {                                                                               \
    unsigned int __x;                                                                                                  \
  };
TG_FP8(e4m3, __HIP_E4M3)
TG_FP8(e5m2, __HIP_E5M2)
TG_FP8(e4m3_fnuz, __HIP_E4M3_FNUZ)
TG_FP8(e5m2_fnuz, __HIP_E5M2_FNUZ)
#undef TG_FP8
