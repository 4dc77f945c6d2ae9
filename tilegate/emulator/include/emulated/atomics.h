// Atomic operations on LDS and global memory. No other work-item runs between the load and the store.
#pragma once

#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

template <typename T> TG_DEVICE T tg_atomic_get(const T *address) {
  static_assert(sizeof(T) <= 8, "an atomic value has at most 8 bytes");
  const uint64_t bits = tg_atomic_load(address, sizeof(T));
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T> TG_DEVICE void tg_atomic_set(T *address, T value) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  tg_atomic_store(address, sizeof(T), bits);
}

#define TG_ATOMIC(name, expression)                                                                                    \
  template <typename T> TG_DEVICE T name(T *address, T value) {                                                        \
    const T old = tg_atomic_get(address);                                                                              \
    tg_atomic_set(address, static_cast<T>(expression));                                                                \
    return old;                                                                                                        \
  }
TG_ATOMIC(atomicAdd, old + value)
TG_ATOMIC(unsafeAtomicAdd, old + value)
TG_ATOMIC(atomicSub, old - value)
TG_ATOMIC(atomicMax, value > old ? value : old)
TG_ATOMIC(atomicMin, value < old ? value : old)
TG_ATOMIC(atomicAnd, old & value)
TG_ATOMIC(atomicOr, old | value)
TG_ATOMIC(atomicXor, old ^ value)
TG_ATOMIC(atomicExch, value)
#undef TG_ATOMIC
template <typename T> TG_DEVICE T atomicCAS(T *address, T expected, T desired) {
  const T old = tg_atomic_get(address);
  if (old == expected) tg_atomic_set(address, desired);
  return old;
}
// Two packed half-precision numbers are one 4-byte operation (global_atomic_pk_add_f16 and _bf16).
#define TG_PACKED_ADD(type, element)                                                                                   \
  TG_DEVICE type atomicAdd(type *address, type value) {                                                                \
    type old = tg_atomic_get(address), sum;                                                                            \
    sum.x = element(static_cast<float>(old.x) + static_cast<float>(value.x));                                          \
    sum.y = element(static_cast<float>(old.y) + static_cast<float>(value.y));                                          \
    tg_atomic_set(address, sum);                                                                                       \
    return old;                                                                                                        \
  }                                                                                                                    \
  TG_DEVICE type unsafeAtomicAdd(type *address, type value) { return atomicAdd(address, value); }

#define __hip_atomic_load(address, order, scope) tg_atomic_get(address)
#define __hip_atomic_store(address, value, order, scope) tg_atomic_set(address, value)
#define __hip_atomic_fetch_add(address, value, order, scope) atomicAdd(address, value)
#define __hip_atomic_fetch_max(address, value, order, scope) atomicMax(address, value)
#define __hip_atomic_fetch_min(address, value, order, scope) atomicMin(address, value)
#define __hip_atomic_fetch_or(address, value, order, scope) atomicOr(address, value)
#define __hip_atomic_fetch_and(address, value, order, scope) atomicAnd(address, value)
#define __hip_atomic_exchange(address, value, order, scope) atomicExch(address, value)
