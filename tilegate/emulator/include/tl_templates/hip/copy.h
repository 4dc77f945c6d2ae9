// Takes the place of TileLang's copy.h, whose inline assembly no host can compile: the same functions (TileLang 0.1.15)
// with copies that are done at a wait for them and not before, whatever their width.
#pragma once
#include <tl_templates/hip/common.h>

namespace tl {

TL_DEVICE void cp_async_commit() {}
template <int N = 0> TL_DEVICE void cp_async_wait() { tg_wait_async(N); }
TL_DEVICE void async_gld_fence(unsigned int count) { tg_wait_async(static_cast<int>(count)); }
TL_DEVICE void wave_barrier() { tg_bare_barrier(); }
TL_DEVICE void async_gld_sld_fence(unsigned int count) {
  if (count == 0) tg_drain();
}

// 4 bytes a lane go through buffer_load_dword … lds: the address in LDS is that of the first lane that takes part, as M0,
// plus 4 times the lane's own number (CDNA3 ISA reference, "Memory Buffer Load to LDS"); so is the base in memory.
template <int N> TL_DEVICE void cp_async_gs(void *lds, const void *global) {
  static_assert(N == 4 || N == 8 || N == 16, "an asynchronous copy has 4, 8 or 16 bytes");
  if constexpr (N == 4) {
    const auto first = [](uintptr_t value) { return tg_read_lane(value, 0, TgExchange::FirstLane); };
    const uintptr_t offset = 4 * static_cast<uintptr_t>(tg_thread_index().x);
    lds = reinterpret_cast<void *>(first(reinterpret_cast<uintptr_t>(lds)) + 4 * tg_lane());
    global = reinterpret_cast<const void *>(first(reinterpret_cast<uintptr_t>(global) - offset) + offset);
  }
  tg_copy_async(lds, global, N);
}

template <int N> TL_DEVICE void cp_async_gs_conditional(void *lds, const void *global, bool condition) {
  if (condition) {
    cp_async_gs<N>(lds, global);
  } else {
    tg_copy_async(lds, nullptr, N);
  }
}

}  // namespace tl
