// Instructions that move values between lanes by a pattern (CDNA3 ISA reference, "Data Parallel Primitives" and the LDS
// instructions DS_PERMUTE_B32 and DS_SWIZZLE_B32).
#pragma once

// The lane that a DPP control reads, -1 if none: beyond the row of 16, or the wave.
TG_DEVICE constexpr int tg_dpp_source(int control, int lane) {
  const int row = lane & ~15, in_row = lane & 15, amount = control & 15;
  if (control < 0x100) return (lane & ~3) | (control >> 2 * (lane & 3) & 3);  // quad_perm
  if (control > 0x100 && control < 0x110) return in_row + amount < 16 ? lane + amount : -1;  // row_shl
  if (control > 0x110 && control < 0x120) return in_row >= amount ? lane - amount : -1;      // row_shr
  if (control > 0x120 && control < 0x130) return row | ((in_row - amount) & 15);             // row_ror
  if (control == 0x130) return lane < 63 ? lane + 1 : -1;                                    // wave_shl
  if (control == 0x134) return (lane + 1) & 63;                                              // wave_rol
  if (control == 0x138) return lane - 1;                                                     // wave_shr
  if (control == 0x13c) return (lane - 1) & 63;                                              // wave_ror
  if (control == 0x140) return row | (15 - in_row);                                          // row_mirror
  if (control == 0x141) return (lane & ~7) | (7 - (lane & 7));                               // row_half_mirror
  if (control == 0x142) return row - 1;                                                      // row_bcast:15
  if (control == 0x143) return lane >= 32 ? 31 : -1;                                         // row_bcast:31
  if (control >= 0x150 && control < 0x160) return row | amount;                              // row_newbcast
  return -2;
}

// Lanes of rows and banks that the masks leave out keep `old`; so do those without a source, unless `bound` gives them 0.
TG_COLLECTIVE int __builtin_amdgcn_update_dpp(int old, int value, int control, int rows, int banks, bool bound) {
  const int lane = static_cast<int>(tg_lane()), source = tg_dpp_source(control, lane);
  if (source == -2) tg_unknown_modifier();
  const uint64_t got = tg_exchange(TgExchange::Dpp, static_cast<uint32_t>(value), source < 0 ? lane : source);
  if (!(rows >> lane / 16 & 1) || !(banks >> (lane & 15) / 4 & 1)) return old;
  if (source < 0 || !(got >> 32)) return bound ? 0 : old;
  return static_cast<int>(static_cast<uint32_t>(got));
}
TG_COLLECTIVE int __builtin_amdgcn_mov_dpp(int value, int control, int rows, int banks, bool bound) {
  return __builtin_amdgcn_update_dpp(value, value, control, rows, banks, bound);
}

TG_COLLECTIVE int __builtin_amdgcn_ds_permute(int byte, int value) {
  return static_cast<int>(tg_exchange(TgExchange::Push, static_cast<uint32_t>(value), (byte >> 2) & 63));
}
TG_COLLECTIVE int __builtin_amdgcn_ds_swizzle(int value, int pattern) {
  const int lane = static_cast<int>(tg_lane());
  const int quad = (lane & ~3) | (pattern >> 2 * (lane & 3) & 3);
  const int masked = (lane & 32) | ((((lane & 31 & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)) & 31);
  return tg_read_lane(value, pattern & 0x8000 ? quad : masked);
}
// How many lower lanes a mask has: of lanes 0 to 31, and of those from 32 on.
TG_DEVICE unsigned int __builtin_amdgcn_mbcnt_lo(unsigned int mask, unsigned int sum) {
  const unsigned int lane = tg_lane();
  return sum + static_cast<unsigned int>(__builtin_popcount(lane < 32 ? mask & ((1u << lane) - 1) : mask));
}
TG_DEVICE unsigned int __builtin_amdgcn_mbcnt_hi(unsigned int mask, unsigned int sum) {
  const unsigned int lane = tg_lane();
  return sum + static_cast<unsigned int>(lane < 32 ? 0 : __builtin_popcount(mask & ((1u << (lane - 32)) - 1)));
}
TG_DEVICE unsigned int __builtin_amdgcn_workitem_id_x() { return tg_thread_index().x; }
TG_DEVICE unsigned int __builtin_amdgcn_workitem_id_y() { return tg_thread_index().y; }
TG_DEVICE unsigned int __builtin_amdgcn_workitem_id_z() { return tg_thread_index().z; }
TG_DEVICE unsigned int __builtin_amdgcn_workgroup_id_x() { return tg_block_index().x; }
TG_DEVICE unsigned int __builtin_amdgcn_workgroup_id_y() { return tg_block_index().y; }
TG_DEVICE unsigned int __builtin_amdgcn_workgroup_id_z() { return tg_block_index().z; }
