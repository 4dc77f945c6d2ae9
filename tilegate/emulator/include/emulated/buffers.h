// Accesses through a buffer resource: beyond its size a load gives 0 and a store does nothing, dword by dword (CDNA3 ISA
// reference, "Buffer Addressing": out of range if offset >= num_records - sgpr_offset, of raw buffers).
#pragma once

struct tg_buffer {
  char *base;
  uint32_t bytes;
};
#define __amdgpu_buffer_rsrc_t tg_buffer

TG_DEVICE tg_buffer __builtin_amdgcn_make_buffer_rsrc(void *base, short stride, int bytes, int) {
  if (stride != 0) tg_unknown_modifier();  // structured buffers
  return {static_cast<char *>(base), static_cast<uint32_t>(bytes)};
}

typedef unsigned int tg_uint2 __attribute__((ext_vector_type(2)));
typedef unsigned int tg_uint3 __attribute__((ext_vector_type(3)));
typedef unsigned int tg_uint4 __attribute__((ext_vector_type(4)));
#define TG_BUFFER(bits, type)                                                                                          \
  TG_DEVICE type __builtin_amdgcn_raw_buffer_load_b##bits(tg_buffer buffer, int offset, int scalar, int) {              \
    constexpr uint64_t part = bits < 32 ? bits / 8 : 4, parts = bits / 8 / part;                                        \
    const uint64_t first = static_cast<uint64_t>(static_cast<uint32_t>(offset)) + static_cast<uint32_t>(scalar);        \
    if (first + bits / 8 <= buffer.bytes) return *reinterpret_cast<const type *>(buffer.base + first);                  \
    type value{};                                                                                                      \
    for (uint64_t i = 0; i < parts && first + part * (i + 1) <= buffer.bytes; ++i)                                      \
      __builtin_memcpy(reinterpret_cast<char *>(&value) + part * i, buffer.base + first + part * i, part);              \
    return value;                                                                                                      \
  }                                                                                                                    \
  TG_DEVICE void __builtin_amdgcn_raw_buffer_store_b##bits(type value, tg_buffer buffer, int offset, int scalar, int) { \
    constexpr uint64_t part = bits < 32 ? bits / 8 : 4, parts = bits / 8 / part;                                        \
    const uint64_t first = static_cast<uint64_t>(static_cast<uint32_t>(offset)) + static_cast<uint32_t>(scalar);        \
    if (first + bits / 8 <= buffer.bytes) {                                                                            \
      *reinterpret_cast<type *>(buffer.base + first) = value;                                                          \
      return;                                                                                                          \
    }                                                                                                                  \
    for (uint64_t i = 0; i < parts && first + part * (i + 1) <= buffer.bytes; ++i)                                      \
      __builtin_memcpy(buffer.base + first + part * i, reinterpret_cast<char *>(&value) + part * i, part);              \
  }
TG_BUFFER(8, unsigned char)
TG_BUFFER(16, unsigned short)
TG_BUFFER(32, unsigned int)
TG_BUFFER(64, tg_uint2)
TG_BUFFER(128, tg_uint4)
#undef TG_BUFFER
