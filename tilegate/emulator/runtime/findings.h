// What is wrong with the kernel, as numbers; the Python side turns them into sentences and sites into lines.
#pragma once
#include <cstdint>
#include <string>

#include "machine.h"

enum class Fault : uint8_t {
  Race,                 // between waves
  WaveRace,             // between lanes of a wave
  WorkgroupRace,        // between workgroups
  CopyRace,             // access to what an asynchronous copy is still to write
  OutOfBounds,
  Uninitialised,
  Misaligned,
  DivergentBarrier,
  DivergentOperation,
  InactiveLane,         // an exchange reads a lane that does not take part
  Signal,
  Expired,
  Memory,
  UninitialisedUse,     // a result or a decision depends on a register that nothing has written
  Overflow,             // integer arithmetic that is not defined; offset tells which
  PrivateBounds,        // an index beyond a variable of the work-item's own
  LdsOverflow,          // static and dynamic LDS together; offset their sum
};

struct Finding {
  Fault kind;
  Site site = 0;
  int thread = -1;
  uint32_t workgroup = 0;
  bool store = false;
  Space space = Space::Lds;
  int bytes = 0;
  int64_t offset = 0;  // in LDS; in the buffer of `parameter`; of Signal the signal's number
  int parameter = -1;  // of the kernel, for global memory: the nearest
  bool has_other = false;
  Site other_site = 0;
  int other_thread = -1;
  uint32_t other_workgroup = 0;
  bool other_store = false;
  uint64_t lanes = 0;        // of the wave: who is at `site`
  uint64_t other_lanes = 0;  // and who at `other_site`, or has ended (no other)
  const char *name = "";     // of a variable; letters, digits and _ alone
};

// Counts a finding; the first of each kind and pair of places is kept whole, up to 64 of a kind.
void found(const Finding &finding);
// Reports what was found and ends the process: the kernel cannot go on.
[[noreturn]] void stop(const Finding &finding);
// The same for what has been found already.
[[noreturn]] void end_run();
std::string findings_json();

// Describes an address for a finding: space, offset and parameter.
void locate(Finding &finding, const void *address);
