// Bits and arithmetic of one work-item: HIP's names, the host's results.
#pragma once

#define TG_BITS(name, to, from)                                                                                        \
  TG_DEVICE to name(from value) { return __builtin_bit_cast(to, value); }
TG_BITS(__float_as_int, int, float)
TG_BITS(__float_as_uint, unsigned int, float)
TG_BITS(__int_as_float, float, int)
TG_BITS(__uint_as_float, float, unsigned int)
TG_BITS(__double_as_longlong, long long, double)
TG_BITS(__longlong_as_double, double, long long)
#undef TG_BITS
TG_DEVICE double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, (static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32) | static_cast<uint32_t>(low));
}
TG_DEVICE int __popc(unsigned int value) { return __builtin_popcount(value); }
TG_DEVICE int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
TG_DEVICE int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(value)); }
TG_DEVICE int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value)); }
TG_DEVICE int __ffs(int value) { return __builtin_ffs(value); }
TG_DEVICE int __ffsll(long long value) { return __builtin_ffsll(value); }
TG_DEVICE unsigned int __brev(unsigned int value) { return __builtin_bitreverse32(value); }

TG_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
TG_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
TG_DEVICE double max(double a, double b) { return __builtin_fmax(a, b); }
TG_DEVICE double min(double a, double b) { return __builtin_fmin(a, b); }
TG_DEVICE _Float16 max(_Float16 a, _Float16 b) { return static_cast<_Float16>(__builtin_fmaxf(a, b)); }
TG_DEVICE _Float16 min(_Float16 a, _Float16 b) { return static_cast<_Float16>(__builtin_fminf(a, b)); }
#define TG_ORDERED(type)                                                                                               \
  TG_DEVICE type max(type a, type b) { return a > b ? a : b; }                                                         \
  TG_DEVICE type min(type a, type b) { return a < b ? a : b; }
TG_ORDERED(int)
TG_ORDERED(unsigned int)
TG_ORDERED(long)
TG_ORDERED(unsigned long)
TG_ORDERED(long long)
TG_ORDERED(unsigned long long)
#undef TG_ORDERED

// The C library declares functions of these names, with its own meaning.
#define __expf(x) ::expf(x)
#define __exp10f(x) ::powf(10.0f, x)
#define __logf(x) ::logf(x)
#define __log2f(x) ::log2f(x)
#define __log10f(x) ::log10f(x)
#define __sinf(x) ::sinf(x)
#define __cosf(x) ::cosf(x)
#define __tanf(x) ::tanf(x)
#define __powf(x, y) ::powf(x, y)
#define TG_MATH(name, expression)                                                                                      \
  TG_DEVICE float name(float x) { return expression; }
TG_MATH(rsqrtf, 1.0f / ::sqrtf(x))
TG_MATH(__frsqrt_rn, 1.0f / ::sqrtf(x))
TG_MATH(__fsqrt_rn, ::sqrtf(x))
TG_MATH(__frcp_rn, 1.0f / x)
TG_MATH(__builtin_amdgcn_rcpf, 1.0f / x)
TG_MATH(__builtin_amdgcn_rsqf, 1.0f / ::sqrtf(x))
TG_MATH(__builtin_amdgcn_sqrtf, ::sqrtf(x))
#undef TG_MATH
// The bare instruction: a subnormal result is 0 (v_exp_f32, CDNA3 ISA reference).
TG_DEVICE float __builtin_amdgcn_exp2f(float x) {
  const float power = ::exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
}
TG_DEVICE float __builtin_amdgcn_logf(float x) { return ::log2f(x); }
TG_DEVICE float __fdividef(float a, float b) { return a / b; }
TG_DEVICE float __fdiv_rn(float a, float b) { return a / b; }
TG_DEVICE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#define TG_HALF_MATH(name, function)                                                                                   \
  TG_DEVICE _Float16 name(_Float16 x) { return static_cast<_Float16>(function(static_cast<float>(x))); }
TG_HALF_MATH(hexp, ::expf)
TG_HALF_MATH(hexp2, ::exp2f)
TG_HALF_MATH(hlog, ::logf)
TG_HALF_MATH(hlog2, ::log2f)
TG_HALF_MATH(hsin, ::sinf)
TG_HALF_MATH(hcos, ::cosf)
TG_HALF_MATH(hrsqrt, rsqrtf)
TG_HALF_MATH(__ocml_sqrt_f16, ::sqrtf)
#undef TG_HALF_MATH

TG_DEVICE int __builtin_amdgcn_sdot4(int a, int b, int sum, bool) {
  for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return sum;
}
TG_DEVICE constexpr int __builtin_amdgcn_wavefrontsize() { return 64; }
