// HIP's vector types. An assignment copies one native vector, so that it is one access to memory, as on the chip.
#pragma once

#define TG_VECTORS(type, name)                                                                                         \
  struct name##1 {                                                                                                     \
    type x;                                                                                                            \
  };                                                                                                                   \
  struct alignas(2 * sizeof(type)) name##2 {                                                                           \
    typedef type native __attribute__((ext_vector_type(2)));                                                           \
    union {                                                                                                            \
      native data;                                                                                                     \
      struct {                                                                                                         \
        type x, y;                                                                                                     \
      };                                                                                                               \
    };                                                                                                                 \
    name##2() = default;                                                                                               \
    name##2(type a, type b) : data{a, b} {}                                                                            \
    name##2(const name##2 &other) : data(other.data) {}                                                                \
    name##2 &operator=(const name##2 &other) {                                                                         \
      data = other.data;                                                                                               \
      return *this;                                                                                                    \
    }                                                                                                                  \
  };                                                                                                                   \
  struct name##3 {                                                                                                     \
    type x, y, z;                                                                                                      \
  };                                                                                                                   \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 {                                              \
    typedef type native __attribute__((ext_vector_type(4), aligned(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type))));   \
    union {                                                                                                            \
      native data;                                                                                                     \
      struct {                                                                                                         \
        type x, y, z, w;                                                                                               \
      };                                                                                                               \
    };                                                                                                                 \
    name##4() = default;                                                                                               \
    name##4(type a, type b, type c, type d) : data{a, b, c, d} {}                                                      \
    name##4(const name##4 &other) : data(other.data) {}                                                                \
    name##4 &operator=(const name##4 &other) {                                                                         \
      data = other.data;                                                                                               \
      return *this;                                                                                                    \
    }                                                                                                                  \
  };                                                                                                                   \
  TG_DEVICE name##1 make_##name##1(type x) { return {x}; }                                                             \
  TG_DEVICE name##2 make_##name##2(type x, type y) { return {x, y}; }                                                  \
  TG_DEVICE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                       \
  TG_DEVICE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

TG_VECTORS(signed char, char)
TG_VECTORS(unsigned char, uchar)
TG_VECTORS(short, short)
TG_VECTORS(unsigned short, ushort)
TG_VECTORS(int, int)
TG_VECTORS(unsigned int, uint)
TG_VECTORS(long, long)
TG_VECTORS(unsigned long, ulong)
TG_VECTORS(long long, longlong)
TG_VECTORS(unsigned long long, ulonglong)
TG_VECTORS(float, float)
TG_VECTORS(double, double)
#undef TG_VECTORS
