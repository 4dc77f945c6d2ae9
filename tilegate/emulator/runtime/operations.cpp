// What lanes do together: barriers of the workgroup, exchange and matrix instructions of a wave.
//
// A lane that arrives waits until all live lanes of its wave (at a barrier: of the workgroup) have arrived. The last one
// carries the operation out for all. When no lane can run, the lanes of a wave that wait at one place under a condition
// carry it out alone, as the chip does with the others masked off.
#include <csignal>

#include "counters.h"
#include "findings.h"
#include "matrix.h"
#include "memory.h"
#include "poison.h"
#include "rendezvous.h"

Machine machine;

namespace {
Finding at(Fault kind, const Lane &lane) {
  Finding finding{kind};
  finding.site = lane.site;
  finding.thread = lane.thread;
  finding.workgroup = machine.workgroup_number;
  return finding;
}

// The lanes among those of `arrived` that wait at the place that comes first in the code: with the others masked off, a
// wave gets through the branches in this order before its lanes meet again.
uint64_t earliest(const Wave &wave) {
  const Lane *lanes = &machine.lanes[wave.first_thread];
  Site first = ~Site{0};
  uint64_t mask = 0;
  for (uint64_t rest = wave.arrived; rest; rest &= rest - 1) {
    const int lane = __builtin_ctzll(rest);
    if (lanes[lane].site > first) continue;
    if (lanes[lane].site < first) mask = 0;
    first = lanes[lane].site;
    mask |= 1ull << lane;
  }
  return mask;
}

void exchange(Lane *lanes, uint64_t mask) {
  const Lane &first = lanes[__builtin_ctzll(mask)];
  if (first.exchange == TgExchange::Ballot) {
    uint64_t votes = 0;
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      const int lane = __builtin_ctzll(rest);
      votes |= (lanes[lane].value & 1) << lane;
    }
    for (uint64_t rest = mask; rest; rest &= rest - 1) lanes[__builtin_ctzll(rest)].value = votes;
  } else if (first.exchange == TgExchange::FirstLane) {
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      Lane &lane = lanes[__builtin_ctzll(rest)];
      lane.value = first.value;
      lane.shadow = first.shadow;
      lane.shadow_origin = first.shadow_origin;
    }
  } else if (first.exchange == TgExchange::Push) {
    uint64_t pushed[kWave] = {}, shadow[kWave] = {};
    uint32_t origin[kWave] = {};
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      const Lane &from = lanes[__builtin_ctzll(rest)];
      const int to = from.source_lane & (kWave - 1);
      pushed[to] = from.value;
      shadow[to] = from.shadow;
      origin[to] = from.shadow_origin;
    }
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      const int lane = __builtin_ctzll(rest);
      lanes[lane].value = pushed[lane];
      lanes[lane].shadow = shadow[lane];
      lanes[lane].shadow_origin = origin[lane];
    }
  } else if (first.exchange != TgExchange::WaveBarrier) {
    uint64_t read[kWave], shadow[kWave];
    uint32_t origin[kWave];
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      const int lane = __builtin_ctzll(rest), source = lanes[lane].source_lane & (kWave - 1);
      const bool there = mask >> source & 1;
      if (!there && lanes[lane].exchange != TgExchange::Dpp) {
        Finding finding = at(Fault::InactiveLane, lanes[lane]);
        finding.offset = source;
        finding.lanes = mask;
        finding.store = lanes[lane].exchange == TgExchange::ReadLane;
        found(finding);
      }
      read[lane] = there ? lanes[source].value : 0;
      if (there && lanes[lane].exchange == TgExchange::Dpp) read[lane] |= 1ull << 32;
      shadow[lane] = there ? lanes[source].shadow : 0;
      origin[lane] = lanes[source].shadow_origin;
    }
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
      const int lane = __builtin_ctzll(rest);
      lanes[lane].value = read[lane];
      lanes[lane].shadow = shadow[lane];
      lanes[lane].shadow_origin = origin[lane];
    }
  }
}

// All live lanes but `self`.
void make_all_ready(const Lane *self) {
  for (int i = 0; i < machine.launch.waves; ++i) {
    Wave &wave = machine.waves[last_wave_first() ? machine.launch.waves - 1 - i : i];
    uint64_t mask = wave.live;
    if (self != nullptr && self->wave == wave.first_thread / kWave) mask &= ~(1ull << self->lane);
    make_ready(&machine.lanes[wave.first_thread], mask);
  }
}
}  // namespace

void complete(Wave &wave, uint64_t mask, const Lane *self) {
  Lane *lanes = &machine.lanes[wave.first_thread];
  const Lane &first = lanes[__builtin_ctzll(mask)];
  if (machine.launch.traced) account_wave(wave);
  ++wave.epoch;
  if (first.waiting == Waiting::Matrix) {
    count_matrix(first.site);
    if (mask != ~0ull) {
      Finding finding = at(Fault::DivergentOperation, first);
      finding.lanes = mask;
      finding.other_lanes = ~mask;
      stop(finding);
    }
    multiply(wave, *first.matrix);
  } else {
    if (first.exchange != TgExchange::WaveBarrier) count_exchange(first.site);
    exchange(lanes, mask);
  }
  wave.arrived &= ~mask;
  if (wave.arrived != 0) {
    wave.site = machine.lanes[wave.first_thread + __builtin_ctzll(wave.arrived)].site;
    wave.mixed = earliest(wave) != wave.arrived;
  }
  if (self != nullptr) mask &= ~(1ull << self->lane);
  make_ready(lanes, mask);
}

namespace {
void release_barrier(const Lane *self) {
  for (int w = 0; w < machine.launch.waves; ++w) {
    Wave &wave = machine.waves[w];
    if (machine.launch.traced) account_wave(wave);
    ++wave.epoch;
  }
  const Lane *first = machine.lanes;
  while (first->waiting != Waiting::Barrier) ++first;
  for (int t = 0; t < machine.launch.threads; ++t) {
    const Lane &lane = machine.lanes[t];
    if (lane.waiting == Waiting::Barrier && lane.site == first->site) continue;
    // It waits at another barrier, or has ended without ever coming here.
    Finding finding = at(Fault::DivergentBarrier, *first);
    finding.has_other = true;
    finding.other_site = lane.waiting == Waiting::Barrier ? lane.site : 0;
    finding.other_thread = lane.thread;
    finding.other_workgroup = machine.workgroup_number;
    stop(finding);
  }
  machine.at_barrier = 0;
  machine.counted = machine.count;
  machine.count = 0;
  bool ordered = true;  // a bare barrier lets pass what is still on its way to LDS
  for (int t = 0; t < machine.launch.threads; ++t) ordered &= !(machine.lanes[t].bare && machine.lanes[t].storing);
  if (ordered) ++machine.epoch;
  count_barrier(first->site);
  make_all_ready(self);
}

}  // namespace

void resolve() {
  for (int w = 0; w < machine.launch.waves; ++w) {
    Wave &wave = machine.waves[w];
    if (wave.arrived == 0) continue;
    complete(wave, earliest(wave), nullptr);
    return;
  }
  abort();  // every live lane would be at a barrier, and the last to arrive releases it
}

void stop_expired() { stop(at(Fault::Expired, *machine.running)); }

namespace {
void lane_main() {
  machine.launch.kernel(machine.launch.arguments.data());
  Lane &self = *machine.running;
  settle_overwrites(self);
  self.waiting = Waiting::Ended;
  Wave &wave = machine.waves[self.wave];
  wave.live &= ~(1ull << self.lane);
  --machine.live;
  if (wave.live && wave.arrived == wave.live && !wave.mixed) complete(wave, wave.live, nullptr);
  if (machine.live && machine.at_barrier == machine.live) release_barrier(nullptr);
  if (machine.live == 0) {
    machine.running = nullptr;
    switch_fiber(self.fiber, machine.scheduler);
  }
  while (!any_ready()) resolve();
  machine.running = take_ready();
  switch_fiber(self.fiber, machine.running->fiber);
  abort();
}
}  // namespace

void run_workgroup(uint32_t number) {
  const Launch &launch = machine.launch;
  machine.workgroup_number = number;
  machine.workgroup = {number % launch.grid.x, number / launch.grid.x % launch.grid.y, number / launch.grid.x / launch.grid.y};
  machine.live = launch.threads;
  machine.at_barrier = 0;
  machine.workgroup_epoch = ++machine.epoch;
  begin_schedule(number);
  prepare_memory();
  for (int w = 0; w < launch.waves; ++w) {
    Wave &wave = machine.waves[w];
    const int count = launch.threads - w * kWave < kWave ? launch.threads - w * kWave : kWave;
    wave = {w * kWave, count == kWave ? ~0ull : (1ull << count) - 1, 0, 0, false, wave.epoch + 1};
  }
  for (int t = 0; t < launch.threads; ++t) {
    Lane &lane = machine.lanes[t];
    lane.thread = t;
    lane.wave = t / kWave;
    lane.lane = t % kWave;
    const unsigned x = launch.block.x, y = launch.block.y, number_in_block = static_cast<unsigned>(t);
    lane.index = {number_in_block % x, number_in_block / x % y, number_in_block / x / y};
    lane.waiting = Waiting::No;
    lane.accesses.clear();
    lane.copies.clear();
    lane.overwrites.clear();
    lane.bare = lane.storing = false;
    // Stacks that all began at one offset of a page would share a few sets of the cache.
    prepare_fiber(lane.fiber, machine.stacks + machine.stack_bytes * static_cast<size_t>(t), machine.stack_bytes - 256 * (t % 16), lane_main);
  }
  make_all_ready(nullptr);
  machine.running = take_ready();
  switch_fiber(machine.scheduler, machine.running->fiber);
  if (launch.traced)
    for (int w = 0; w < launch.waves; ++w) account_wave(machine.waves[w]);
}

extern "C" {
TgIndex tg_thread_index() { return machine.running->index; }
TgIndex tg_block_index() { return machine.workgroup; }
TgIndex tg_block_size() { return machine.launch.block; }
TgIndex tg_grid_size() { return machine.launch.grid; }
unsigned int tg_lane() { return static_cast<unsigned int>(machine.running->lane); }

void tg_unknown_modifier() {
  Lane &self = *machine.running;
  self.site = TG_SITE();
  Finding finding = at(Fault::Signal, self);
  finding.offset = SIGTRAP;
  stop(finding);
}

static inline __attribute__((always_inline)) void come_to_barrier(Site site, bool bare) {
  Lane &self = *machine.running;
  settle_overwrites(self);
  self.waiting = Waiting::Barrier;
  self.site = site;
  self.bare = bare;
  self.storing &= bare;
  if (++machine.at_barrier == machine.live) {
    release_barrier(&self);
    if (!yields_after_release()) return;
    make_ready(&self, 1);
  }
  park(self);
}
void tg_barrier() { come_to_barrier(TG_SITE(), false); }
void tg_bare_barrier() { come_to_barrier(TG_SITE(), true); }
int tg_barrier_count(int predicate) {
  machine.count += predicate;
  come_to_barrier(TG_SITE(), false);
  return machine.counted;  // until all have come to the next
}
void tg_drain() { machine.running->storing = false; }

uint64_t tg_exchange(TgExchange kind, uint64_t value, int source_lane) {
  Lane &self = *machine.running;
  settle_overwrites(self);
  self.exchange = kind;
  self.value = value;
  self.source_lane = source_lane;
  if (machine.launch.shadowed) bring_shadow(self, TG_SITE());
  arrive(self, Waiting::Exchange, TG_SITE());
  if (machine.launch.shadowed) take_shadow(self);
  return self.value;
}
}
