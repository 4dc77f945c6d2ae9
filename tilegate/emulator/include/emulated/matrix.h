// Matrix instructions, each only where the chip has it: a kernel that uses another is an error that names it.
//
// TG_MFMA(name, rows, columns, depth, A's elements, B's elements, operand A, operand B, accumulator)
#pragma once

typedef _Float16 tg_half4 __attribute__((vector_size(8)));
typedef _Float16 tg_half8 __attribute__((vector_size(16)));
typedef short tg_short4 __attribute__((vector_size(8)));
typedef short tg_short8 __attribute__((vector_size(16)));
typedef float tg_float4 __attribute__((vector_size(16)));
typedef float tg_float16 __attribute__((vector_size(64)));
typedef int tg_int4 __attribute__((vector_size(16)));
typedef int tg_int16 __attribute__((vector_size(64)));
// Operands of these instructions come as vectors of several spellings (bfloat16 as short or __bf16): only bytes matter.
template <size_t bytes, typename Vector> TG_DEVICE const Vector &tg_operand(const Vector &vector) {
  static_assert(sizeof(Vector) == bytes, "the operand of a matrix instruction has another size");
  return vector;
}

#if __has_feature(memory_sanitizer)
#define TG_SHADOWS(call) call
#else
#define TG_SHADOWS(call)
#endif
#define TG_MFMA(name, rows, columns, depth, a_type, b_type, bytes, accumulator)                                        \
  template <typename A, typename B>                                                                                    \
  TG_COLLECTIVE accumulator __builtin_amdgcn_mfma_##name(A a, B b, accumulator c, int cbsz, int abid, int blgp) {          \
    static constexpr TgMatrix shape{rows, columns, depth, TgElement::a_type, TgElement::b_type};                       \
    if (cbsz | abid | blgp) tg_unknown_modifier(); /* broadcasts and rotations of operands */                         \
    accumulator d;                                                                                                     \
    TG_SHADOWS(tg_bring_factors(&shape, &tg_operand<bytes>(a), &tg_operand<bytes>(b));)                                \
    tg_matrix(&shape, &tg_operand<bytes>(a), &tg_operand<bytes>(b), &c, &d);                                           \
    TG_SHADOWS(tg_take_factors(&shape, &c, &d);)                                                                       \
    return d;                                                                                                          \
  }

TG_MFMA(f32_16x16x16f16, 16, 16, 16, Half, Half, 8, tg_float4)
TG_MFMA(f32_32x32x8f16, 32, 32, 8, Half, Half, 8, tg_float16)
TG_MFMA(f32_16x16x16bf16_1k, 16, 16, 16, BFloat, BFloat, 8, tg_float4)
TG_MFMA(f32_32x32x8bf16_1k, 32, 32, 8, BFloat, BFloat, 8, tg_float16)
TG_MFMA(f32_16x16x4f32, 16, 16, 4, Float, Float, 4, tg_float4)
TG_MFMA(f32_32x32x2f32, 32, 32, 2, Float, Float, 4, tg_float16)
#if defined(__gfx90a__)
TG_MFMA(i32_16x16x16i8, 16, 16, 16, Int8, Int8, 4, tg_int4)
TG_MFMA(i32_32x32x8i8, 32, 32, 8, Int8, Int8, 4, tg_int16)
#else
TG_MFMA(i32_16x16x32_i8, 16, 16, 32, Int8, Int8, 8, tg_int4)
TG_MFMA(i32_32x32x16_i8, 32, 32, 16, Int8, Int8, 8, tg_int16)
#if defined(__gfx950__)
#define TG_FP8 Fp8Ocp
#define TG_BF8 Bf8Ocp
#else
#define TG_FP8 Fp8Fnuz
#define TG_BF8 Bf8Fnuz
#endif
TG_MFMA(f32_16x16x32_fp8_fp8, 16, 16, 32, TG_FP8, TG_FP8, 8, tg_float4)
TG_MFMA(f32_16x16x32_fp8_bf8, 16, 16, 32, TG_FP8, TG_BF8, 8, tg_float4)
TG_MFMA(f32_16x16x32_bf8_fp8, 16, 16, 32, TG_BF8, TG_FP8, 8, tg_float4)
TG_MFMA(f32_16x16x32_bf8_bf8, 16, 16, 32, TG_BF8, TG_BF8, 8, tg_float4)
TG_MFMA(f32_32x32x16_fp8_fp8, 32, 32, 16, TG_FP8, TG_FP8, 8, tg_float16)
TG_MFMA(f32_32x32x16_fp8_bf8, 32, 32, 16, TG_FP8, TG_BF8, 8, tg_float16)
TG_MFMA(f32_32x32x16_bf8_fp8, 32, 32, 16, TG_BF8, TG_FP8, 8, tg_float16)
TG_MFMA(f32_32x32x16_bf8_bf8, 32, 32, 16, TG_BF8, TG_BF8, 8, tg_float16)
#undef TG_FP8
#undef TG_BF8
#endif
#if defined(__gfx950__)
TG_MFMA(f32_16x16x32_f16, 16, 16, 32, Half, Half, 16, tg_float4)
TG_MFMA(f32_32x32x16_f16, 32, 32, 16, Half, Half, 16, tg_float16)
TG_MFMA(f32_16x16x32_bf16, 16, 16, 32, BFloat, BFloat, 16, tg_float4)
TG_MFMA(f32_32x32x16_bf16, 32, 32, 16, BFloat, BFloat, 16, tg_float16)
TG_MFMA(i32_16x16x64_i8, 16, 16, 64, Int8, Int8, 16, tg_int4)
TG_MFMA(i32_32x32x32_i8, 32, 32, 32, Int8, Int8, 16, tg_int16)
#endif
#undef TG_MFMA
#undef TG_SHADOWS
