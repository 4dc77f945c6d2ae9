#include "schedule.h"

#include <random>
#include <utility>

Ready ready;

namespace {
std::mt19937_64 generator;
}

void set_schedule(const Schedule &wanted) {
  ready.schedule = wanted;
  generator.seed(wanted.seed);
}

void draw_ready() {
  const unsigned drawn = ready.head + static_cast<unsigned>(generator() % (ready.tail - ready.head));
  std::swap(ready.slots[ready.head % Ready::kSlots], ready.slots[drawn % Ready::kSlots]);
}
