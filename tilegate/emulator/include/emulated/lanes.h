// Barriers, fences, and exchange between the lanes of a wave.
#pragma once

TG_COLLECTIVE void __syncthreads() { tg_barrier(); }
TG_COLLECTIVE void __builtin_amdgcn_s_barrier() { tg_bare_barrier(); }
TG_COLLECTIVE int __syncthreads_count(int predicate) { return tg_barrier_count(predicate != 0); }
TG_COLLECTIVE int __syncthreads_or(int predicate) { return tg_barrier_count(predicate != 0) != 0; }
TG_COLLECTIVE int __syncthreads_and(int predicate) { return tg_barrier_count(predicate == 0) == 0; }
TG_COLLECTIVE void __builtin_amdgcn_wave_barrier() { tg_exchange(TgExchange::WaveBarrier, 0, 0); }
TG_COLLECTIVE void __syncwarp() { __builtin_amdgcn_wave_barrier(); }
// One work-item runs at a time and sees every earlier store: fences only wait for stores in LDS, and hints to the
// instruction scheduler do nothing.
TG_DEVICE void __threadfence() { tg_drain(); }
TG_DEVICE void __threadfence_block() { tg_drain(); }
TG_DEVICE void __threadfence_system() { tg_drain(); }
TG_DEVICE void __builtin_amdgcn_fence(int, const char *) { tg_drain(); }
// Bits 8 to 11 are lgkmcnt, which counts what is under way in LDS (CDNA3 ISA reference, S_WAITCNT).
TG_DEVICE void __builtin_amdgcn_s_waitcnt(int counts) {
  if ((counts >> 8 & 15) == 0) tg_drain();
}
TG_DEVICE void __builtin_amdgcn_sched_barrier(int) {}
TG_DEVICE void __builtin_amdgcn_sched_group_barrier(int, int, int) {}
TG_DEVICE void __builtin_amdgcn_iglp_opt(int) {}
TG_DEVICE void __builtin_amdgcn_s_setprio(int) {}
TG_DEVICE void __builtin_amdgcn_s_sleep(int) {}

template <typename T> TG_COLLECTIVE T tg_read_lane(T value, int lane, TgExchange kind = TgExchange::Shuffle) {
  static_assert(sizeof(T) <= 8, "a shuffled value has at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = tg_exchange(kind, bits, lane);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

// `width`, a power of two, cuts the wave into segments; a lane outside the own segment means the own lane.
template <typename T> TG_COLLECTIVE T __shfl(T value, int source, int width = warpSize) {
  return tg_read_lane(value, (static_cast<int>(tg_lane()) & ~(width - 1)) + (source & (width - 1)));
}
template <typename T> TG_COLLECTIVE T __shfl_up(T value, unsigned int delta, int width = warpSize) {
  const int self = static_cast<int>(tg_lane()), lane = self - static_cast<int>(delta);
  return tg_read_lane(value, lane < (self & ~(width - 1)) ? self : lane);
}
template <typename T> TG_COLLECTIVE T __shfl_down(T value, unsigned int delta, int width = warpSize) {
  const int self = static_cast<int>(tg_lane()), lane = self + static_cast<int>(delta);
  return tg_read_lane(value, (self & (width - 1)) + static_cast<int>(delta) >= width ? self : lane);
}
template <typename T> TG_COLLECTIVE T __shfl_xor(T value, int mask, int width = warpSize) {
  const int self = static_cast<int>(tg_lane()), lane = self ^ mask;
  return tg_read_lane(value, lane >= ((self + width) & ~(width - 1)) ? self : lane);
}
template <typename T> TG_COLLECTIVE T __shfl_sync(uint64_t, T value, int source, int width = warpSize) { return __shfl(value, source, width); }
template <typename T> TG_COLLECTIVE T __shfl_up_sync(uint64_t, T value, unsigned int delta, int width = warpSize) { return __shfl_up(value, delta, width); }
template <typename T> TG_COLLECTIVE T __shfl_down_sync(uint64_t, T value, unsigned int delta, int width = warpSize) { return __shfl_down(value, delta, width); }
template <typename T> TG_COLLECTIVE T __shfl_xor_sync(uint64_t, T value, int mask, int width = warpSize) { return __shfl_xor(value, mask, width); }

TG_COLLECTIVE int __builtin_amdgcn_ds_bpermute(int byte, int value) { return tg_read_lane(value, (byte >> 2) & 63); }
TG_COLLECTIVE unsigned int __builtin_amdgcn_readfirstlane(unsigned int value) { return tg_read_lane(value, 0, TgExchange::FirstLane); }
TG_COLLECTIVE int __builtin_amdgcn_readlane(int value, int lane) { return tg_read_lane(value, lane & 63, TgExchange::ReadLane); }
TG_COLLECTIVE unsigned long long __ballot(int predicate) { return tg_exchange(TgExchange::Ballot, predicate != 0, 0); }
TG_COLLECTIVE unsigned long long __builtin_amdgcn_ballot_w64(bool predicate) { return __ballot(predicate); }
TG_COLLECTIVE unsigned long long __activemask() { return __ballot(1); }
TG_COLLECTIVE int __any(int predicate) { return __ballot(predicate) != 0; }
TG_COLLECTIVE int __all(int predicate) { return __ballot(predicate == 0) == 0; }
TG_DEVICE unsigned int __lane_id() { return tg_lane(); }

#if defined(__gfx950__)
// LDS reads that transpose between lanes: TileLang's ldsm.h names them, and no kernel may call them here.
#define TG_UNSUPPORTED(name)                                                                                           \
  template <typename T> __attribute__((error("not emulated"))) T name(__attribute__((address_space(3))) T *);
TG_UNSUPPORTED(__builtin_amdgcn_ds_read_tr16_b64_v4f16)
TG_UNSUPPORTED(__builtin_amdgcn_ds_read_tr8_b64_v2i32)
#undef TG_UNSUPPORTED
#endif
