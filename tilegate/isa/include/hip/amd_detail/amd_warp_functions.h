// Exchange and votes between the lanes of a wave. A shuffle is one LDS permute (ds_bpermute_b32) a 32-bit word.
#pragma once
#include <hip/hip_runtime.h>

TG_DEVICE int tg_lane() { return static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u))); }

// The value that `lane` holds. `T` is made of whole 32-bit words, or is smaller than one and converts to int.
template <typename T> TG_DEVICE T tg_read_lane(T value, int lane) {
  if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__builtin_amdgcn_ds_bpermute(lane << 2, static_cast<int>(value)));
  } else {
    static_assert(sizeof(T) % 4 == 0, "a shuffled value is made of whole 32-bit words");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int &word : words) word = __builtin_amdgcn_ds_bpermute(lane << 2, word);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
  }
}

// `width`, a power of two, cuts the wave into segments; a lane outside the own segment means the own lane.
template <typename T> TG_DEVICE T __shfl(T value, int source, int width = warpSize) {
  return tg_read_lane(value, (tg_lane() & ~(width - 1)) + (source & (width - 1)));
}
template <typename T> TG_DEVICE T __shfl_up(T value, unsigned int delta, int width = warpSize) {
  const int self = tg_lane(), lane = self - static_cast<int>(delta);
  return tg_read_lane(value, lane < (self & ~(width - 1)) ? self : lane);
}
template <typename T> TG_DEVICE T __shfl_down(T value, unsigned int delta, int width = warpSize) {
  const int self = tg_lane(), lane = self + static_cast<int>(delta);
  return tg_read_lane(value, (self & (width - 1)) + static_cast<int>(delta) >= width ? self : lane);
}
template <typename T> TG_DEVICE T __shfl_xor(T value, int mask, int width = warpSize) {
  const int self = tg_lane(), lane = self ^ mask;
  return tg_read_lane(value, lane >= ((self + width) & ~(width - 1)) ? self : lane);
}

TG_DEVICE unsigned long long __ballot(int predicate) { return __builtin_amdgcn_ballot_w64(predicate != 0); }
TG_DEVICE unsigned long long __activemask() { return __ballot(1); }
TG_DEVICE int __any(int predicate) { return __ballot(predicate) != 0; }
TG_DEVICE int __all(int predicate) { return __ballot(predicate) == __activemask(); }
TG_DEVICE unsigned int __lane_id() { return static_cast<unsigned int>(tg_lane()); }
