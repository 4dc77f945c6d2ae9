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

// The bare instructions take subnormal inputs for 0 and give 0 for subnormal results (V_EXP_F32, V_LOG_F32, V_RCP_F32,
// V_RSQ_F32 and V_SQRT_F32 in the CDNA3 ISA reference; LLVM scales around each of them for that reason).
TG_DEVICE float tg_flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }
#define TG_BARE(name, expression)                                                                                      \
  TG_DEVICE float name(float x) {                                                                                      \
    x = tg_flushed(x);                                                                                                 \
    return tg_flushed(expression);                                                                                     \
  }
TG_BARE(__builtin_amdgcn_rcpf, 1.0f / x)
TG_BARE(__builtin_amdgcn_rsqf, 1.0f / ::sqrtf(x))
TG_BARE(__builtin_amdgcn_sqrtf, ::sqrtf(x))
TG_BARE(__builtin_amdgcn_exp2f, ::exp2f(x))
TG_BARE(__builtin_amdgcn_logf, ::log2f(x))
#undef TG_BARE
TG_DEVICE float tg_native_exp(float x) { return __builtin_amdgcn_exp2f(x * 1.44269504f); }
TG_DEVICE float tg_native_log(float x) { return __builtin_amdgcn_logf(x) * 0.693147181f; }

// The C library declares functions of these names, with its own meaning. HIP's of two underscores are made of the bare
// instructions (__ocml_native_exp_f32 and __ocml_native_log_f32 of ROCm's device library).
#define __expf(x) tg_native_exp(x)
#define __exp10f(x) ::powf(10.0f, x)
#define __logf(x) tg_native_log(x)
#define __log2f(x) __builtin_amdgcn_logf(x)
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
#undef TG_MATH
TG_DEVICE float __builtin_amdgcn_fmed3f(float a, float b, float c) {
  return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
TG_DEVICE unsigned int __builtin_amdgcn_perm(unsigned int high, unsigned int low, unsigned int selectors) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned int selector = selectors >> 8 * i & 255;
    unsigned int byte = selector == 12 ? 0 : 255;
    if (selector < 8) byte = bytes >> 8 * selector & 255;
    if (selector >= 8 && selector < 12) byte = bytes >> (16 * (selector - 8) + 15) & 1 ? 255 : 0;  // a sign
    result |= byte << 8 * i;
  }
  return result;
}
template <typename T> TG_DEVICE T __ldg(const T *address) { return *address; }
TG_DEVICE unsigned int __umulhi(unsigned int a, unsigned int b) { return static_cast<unsigned int>(static_cast<uint64_t>(a) * b >> 32); }
TG_DEVICE int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
TG_DEVICE int __mul24(int a, int b) { return static_cast<int>((a << 8 >> 8) * static_cast<int64_t>(b << 8 >> 8)); }
// The host's: no time of a chip.
TG_DEVICE long long clock64() { return static_cast<long long>(__builtin_readcyclecounter()); }
TG_DEVICE long long wall_clock64() { return clock64(); }
TG_DEVICE float __fadd_rn(float a, float b) { return a + b; }
TG_DEVICE float __fsub_rn(float a, float b) { return a - b; }
TG_DEVICE float __fmul_rn(float a, float b) { return a * b; }
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
