#include "schedule.h"

#include <random>
#include <utility>

Ready ready;

namespace {
std::mt19937_64 generator;
}

void set_schedule(const Schedule &wanted) {
  ready.schedule = wanted;
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
