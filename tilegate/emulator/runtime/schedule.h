// The order in which lanes that could run do run. The chip promises none between waves; a correct kernel's result does not
// depend on it.
#pragma once
#include <cstdint>

#include "machine.h"

struct Schedule {
  bool descending;  // lanes of a wave from the last to the first
  enum class Waves { Greedy, Robin, Random } waves;  // Greedy: a wave runs on until it must wait
  uint64_t seed;
  enum class Workgroups { Up, Down, Random } workgroups;
};

// A ring: lanes that became ready last stand in front (Greedy) or at the back (Robin, Random).
struct Ready {
  static constexpr unsigned kSlots = 2 * kMaxThreads;
  Schedule schedule;
  unsigned head, tail;
  Lane *slots[kSlots];
};
extern Ready ready;

void set_schedule(const Schedule &schedule);
// Which workgroup comes in a turn. Each comes once.
uint64_t workgroup_of_turn(uint64_t turn, uint64_t workgroups);
// Nobody is ready. The order of a workgroup does not depend on which ones its process ran before.
void begin_schedule(uint32_t workgroup);
// Puts a lane drawn at random in front.
void draw_ready();

inline bool any_ready() { return ready.head != ready.tail; }
inline Lane *take_ready() {
  if (ready.schedule.waves == Schedule::Waves::Random) draw_ready();
  return ready.slots[ready.head++ % Ready::kSlots];
}
// The lane after the next one: its stack is in no cache that is near.
inline void prefetch_ready() {
  if (!any_ready()) return;
  const auto *stack = static_cast<const char *>(fiber_top(ready.slots[ready.head % Ready::kSlots]->fiber));
  __builtin_prefetch(stack);
  __builtin_prefetch(stack + 64);
  __builtin_prefetch(stack + 128);
  __builtin_prefetch(stack + 192);
  __builtin_prefetch(stack + 256);
  __builtin_prefetch(stack + 320);
  __builtin_prefetch(ready.slots[(ready.head + 1) % Ready::kSlots], 1);
}
// Makes lanes ready: those of `mask` among the 64 from `lanes` on.
inline void make_ready(Lane *lanes, uint64_t mask) {
  const bool front = ready.schedule.waves == Schedule::Waves::Greedy;
  if (ready.schedule.descending == front) {
    for (; mask; mask &= mask - 1) {
      Lane *lane = lanes + __builtin_ctzll(mask);
      ready.slots[(front ? --ready.head : ready.tail++) % Ready::kSlots] = lane;
    }
  } else {
    while (mask) {
      const int last = 63 - __builtin_clzll(mask);
      mask ^= 1ull << last;
      ready.slots[(front ? --ready.head : ready.tail++) % Ready::kSlots] = lanes + last;
    }
  }
}
// The order of waves in which `make_ready` must be called for all to come in the schedule's order.
inline bool last_wave_first() { return ready.schedule.descending != (ready.schedule.waves == Schedule::Waves::Greedy); }
// Whether the lane that releases others has no precedence over them.
inline bool yields_after_release() { return ready.schedule.waves == Schedule::Waves::Random; }
