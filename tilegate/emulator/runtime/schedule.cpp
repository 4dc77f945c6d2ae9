#include "schedule.h"

#include <numeric>
#include <random>
#include <utility>

Ready ready;

namespace {
std::mt19937_64 generator;
}

void set_schedule(const Schedule &wanted) {
  ready.schedule = wanted;
}

uint64_t workgroup_of_turn(uint64_t turn, uint64_t workgroups) {
  switch (ready.schedule.workgroups) {
    case Schedule::Workgroups::Up:
      return turn;
    case Schedule::Workgroups::Down:
      return workgroups - 1 - turn;
    case Schedule::Workgroups::Random:
      break;
  }
  // A step that has no factor in common with their number meets each once.
  std::mt19937_64 lot(ready.schedule.seed);
  uint64_t step;
  do step = 1 + lot() % workgroups;
  while (std::gcd(step, workgroups) != 1);
  const uint64_t first = lot() % workgroups;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(step) * turn + first) % workgroups);
}

void begin_schedule(uint32_t workgroup) {
  ready.head = ready.tail = 0;
  const uint64_t seed = ready.schedule.seed;
  std::seed_seq mixed{seed, seed >> 32, uint64_t{workgroup}};
  generator.seed(mixed);
}

void draw_ready() {
  const unsigned drawn = ready.head + static_cast<unsigned>(generator() % (ready.tail - ready.head));
  std::swap(ready.slots[ready.head % Ready::kSlots], ready.slots[drawn % Ready::kSlots]);
}
