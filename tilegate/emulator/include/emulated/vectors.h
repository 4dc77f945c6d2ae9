// HIP's vector types, with HIP's arithmetic element by element. An assignment copies one native vector, so that it is one
// access to memory, as on the chip.
#pragma once

// As the builtin, also of vectors, which are not trivially copyable here.
template <typename To, typename From> TG_DEVICE constexpr To tg_bit_cast(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast between types of different sizes");
  if constexpr (__is_trivially_copyable(To) && __is_trivially_copyable(From)) {
    return __builtin_bit_cast(To, from);
  } else {
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
  }
}
#define __builtin_bit_cast(type, value) tg_bit_cast<type>(value)

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
    __forceinline__ name##2(type a, type b) : data{a, b} {}                                                            \
    __forceinline__ name##2(const name##2 &other) : data(other.data) {}                                                \
    __forceinline__ name##2 &operator=(const name##2 &other) {                                                         \
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
    __forceinline__ name##4(type a, type b, type c, type d) : data{a, b, c, d} {}                                      \
    __forceinline__ name##4(const name##4 &other) : data(other.data) {}                                                \
    __forceinline__ name##4 &operator=(const name##4 &other) {                                                         \
      data = other.data;                                                                                               \
      return *this;                                                                                                    \
    }                                                                                                                  \
  };                                                                                                                   \
  TG_DEVICE name##1 make_##name##1(type x) { return {x}; }                                                             \
  TG_DEVICE name##2 make_##name##2(type x, type y) { return {x, y}; }                                                  \
  TG_DEVICE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                       \
  TG_DEVICE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

#define TG_ELEMENTWISE(type, name, count, operation)                                                                    \
  TG_DEVICE name##count operator operation(name##count a, name##count b) {                                              \
    a.data = a.data operation b.data;                                                                                   \
    return a;                                                                                                           \
  }                                                                                                                     \
  TG_DEVICE name##count operator operation(name##count a, type b) {                                                     \
    a.data = a.data operation b;                                                                                        \
    return a;                                                                                                           \
  }                                                                                                                     \
  TG_DEVICE name##count operator operation(type a, name##count b) {                                                     \
    b.data = a operation b.data;                                                                                        \
    return b;                                                                                                           \
  }                                                                                                                     \
  TG_DEVICE name##count &operator operation##=(name##count & a, name##count b) { return a = a operation b; }              \
  TG_DEVICE name##count &operator operation##=(name##count & a, type b) { return a = a operation b; }
#define TG_ARITHMETIC(type, name)                                                                                      \
  TG_ELEMENTWISE(type, name, 2, +)                                                                                     \
  TG_ELEMENTWISE(type, name, 2, -)                                                                                     \
  TG_ELEMENTWISE(type, name, 2, *)                                                                                     \
  TG_ELEMENTWISE(type, name, 2, /)                                                                                     \
  TG_ELEMENTWISE(type, name, 4, +)                                                                                     \
  TG_ELEMENTWISE(type, name, 4, -)                                                                                     \
  TG_ELEMENTWISE(type, name, 4, *)                                                                                     \
  TG_ELEMENTWISE(type, name, 4, /)

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
TG_ARITHMETIC(int, int)
TG_ARITHMETIC(unsigned int, uint)
TG_ARITHMETIC(float, float)
TG_ARITHMETIC(double, double)
#undef TG_VECTORS
#undef TG_ELEMENTWISE
#undef TG_ARITHMETIC
