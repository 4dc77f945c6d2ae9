// How a lane waits for the others. Inlined into each operation: a lane does so every hundred instructions or less.
#pragma once
#include "findings.h"
#include "machine.h"
#include "schedule.h"

// Carries out the operation that the lanes of `mask` wait for and makes them ready, `self` (null: nobody) excepted.
void complete(Wave &wave, uint64_t mask, const Lane *self);
// No lane can run: lanes of a wave wait for an operation that others do not come to, and carry it out alone.
void resolve();
// Ends the run when its time has passed.
void stop_expired();

// Lets other lanes run until this one is made ready.
inline __attribute__((always_inline)) void park(Lane &self) {
  if (machine.expired) stop_expired();
  while (!any_ready()) resolve();
  Lane *next = take_ready();
  if (next == &self) return;
  machine.running = next;
  prefetch_ready();
  switch_fiber(self.fiber, next->fiber);
}

// The lane has come to an operation of its wave; returns when it is done.
inline __attribute__((always_inline)) void arrive(Lane &self, Waiting what, Site site) {
  Wave &wave = machine.waves[self.wave];
  self.waiting = what;
  self.site = site;
  if (wave.arrived == 0) {
    wave.site = site;
    wave.mixed = false;
  } else {
    wave.mixed |= wave.site != site;
  }
  wave.arrived |= 1ull << self.lane;
  if (wave.arrived == wave.live && !wave.mixed) {
    complete(wave, wave.live, &self);
    if (!yields_after_release()) return;
    make_ready(&self, 1);
  }
  park(self);
}
