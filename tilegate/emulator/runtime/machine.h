// The emulated chip while it runs one workgroup: its lanes, waves and memories. One instance, one thread.
#pragma once
#include <cstdint>
#include <vector>

#include <emulated/interface.h>

#include "fiber.h"

constexpr int kWave = 64;            // lanes of a wave
constexpr int kMaxThreads = 1024;    // of a workgroup
constexpr int kMaxWaves = kMaxThreads / kWave;

using Site = uint32_t;  // a place in the kernel: the return address of a call into the runtime, relative to its library

enum class Space : uint8_t { Lds = 1, Global = 2 };

// A load or store that a lane has executed and that is not yet accounted for as part of a wave's instruction.
struct Access {
  uint64_t address;  // in LDS an offset
  Site site;
  uint8_t bytes;
  bool store;
  Space space;
};

// An asynchronous copy that is under way.
struct Copy {
  char *lds;
  const char *global;  // null: zeros
  int bytes;
  Site site;
};

// A store onto bytes that another work-item wrote without order between them: a race, unless it writes what is there.
struct Overwrite {
  const char *address;
  uint8_t bytes;
  uint8_t before[16];
  Site site, other_site;
  int other_thread;
  uint32_t other_epoch;
};

enum class Waiting : uint8_t { No, Exchange, Matrix, Barrier, Ended };  // for what, last

// What every switch touches comes first, in one cache line.
struct alignas(128) Lane {
  Fiber fiber;
  int thread, wave, lane;
  Waiting waiting;
  TgExchange exchange;  // which, how, and with what value: of an exchange
  Site site;            // where it waits
  int source_lane;
  uint64_t value, shadow;  // of an exchange; bits of the value that are not initialised
  uint32_t shadow_origin;
  const TgMatrix *matrix;
  TgIndex index;
  bool bare, storing;  // at a barrier that waits for nothing; has stored in LDS since it last waited
  // From here on of traced runs, but for copies.
  std::vector<Overwrite> overwrites;
  std::vector<Access> accesses;
  std::vector<Copy> copies;
};

struct Wave {
  int first_thread;
  uint64_t live, arrived;  // lanes that have not ended; lanes that wait for an operation of the wave
  Site site;               // where the first of them waits
  bool mixed;              // others wait elsewhere
  uint32_t epoch;          // advances with every operation of the wave and every barrier
};

// A buffer that the kernel was given.
struct Buffer {
  uint64_t begin, end;
  int parameter;
};

struct Launch {
  TgIndex grid, block;
  int threads, waves;
  bool traced, flushes_subnormals;
  bool shadowed;  // built to tell what is initialised (poison.h)
  enum class Rounding { Chip, Fma, Exact, Groups } rounding;
  std::vector<void *> arguments;
  std::vector<Buffer> buffers;
  char *lds;  // dynamic LDS
  size_t lds_bytes;
  char *static_lds;
  size_t static_lds_bytes;
  int lds_banks;     // of the chip
  size_t lds_limit;  // what a workgroup of the chip can have
  uint64_t code_begin, code_end;  // the kernel's library
  void (*kernel)(void **);
};

struct Machine {
  Launch launch;
  Lane lanes[kMaxThreads];
  Wave waves[kMaxWaves];
  Lane *running;    // null while no lane runs
  Fiber scheduler;  // what runs when no lane does
  TgIndex workgroup;
  uint32_t workgroup_number;
  uint64_t turn;  // of the workgroup: how many were begun before it
  int live, at_barrier;
  int count, counted;  // work-items that say yes at the barrier that is to come, and at the last
  uint32_t epoch = 1;           // advances with every barrier and every workgroup
  uint32_t workgroup_epoch = 1;  // the first epoch of this workgroup
  char *stacks;
  size_t stack_bytes;  // of one lane
  volatile bool expired;  // the time limit has passed
};

extern Machine machine;

// Of one lane; kernels with larger frames do not compile (program.py). Where nothing is kept in registers it takes more.
constexpr size_t kStackBytes = 32 << 10, kShadowedStackBytes = 256 << 10;

inline Site site_of(const void *return_address) {
  return static_cast<Site>(reinterpret_cast<uint64_t>(return_address) - machine.launch.code_begin);
}
#define TG_SITE() site_of(__builtin_return_address(0))

// Offset in LDS (dynamic first, static behind it) of an address, or -1.
inline int64_t lds_offset(const void *address) {
  const auto *byte = static_cast<const char *>(address);
  const Launch &launch = machine.launch;
  if (byte >= launch.lds && byte < launch.lds + launch.lds_bytes) return byte - launch.lds;
  if (byte >= launch.static_lds && byte < launch.static_lds + launch.static_lds_bytes)
    return static_cast<int64_t>(launch.lds_bytes) + (byte - launch.static_lds);
  return -1;
}

void run_workgroup(uint32_t number);
