// Which accesses are ordered. Inside a workgroup only a barrier orders the accesses of two work-items; `Machine::epoch`
// counts barriers, so two accesses of one epoch by different work-items conflict when one is a store. (The chip runs the lanes of a wave in step, which this emulator does not: see Fault::WaveRace.) Workgroups are never
// ordered. Atomics are ordered among themselves and with nothing else, so they are remembered apart.
#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "counters.h"
#include "findings.h"
#include "poison.h"
#include "rendezvous.h"
#include "report.h"

namespace {
// The last access of one sort.
struct Record {
  uint32_t epoch, wave_epoch;
  Site site;
  uint16_t thread;
  uint16_t waves;  // which waves of the workgroup did so in `epoch`
};
// The last one of another workgroup, which those of the own do not make forgotten.
struct Foreign {
  uint32_t epoch;
  Site site;
  uint16_t thread;
};
// What is known of one byte.
struct Cell {
  Record store, load, atomic;
  Foreign foreign_load, foreign_atomic;
  uint32_t earlier_load_epoch;  // loads of the epoch before, for barriers that are needed
  uint16_t earlier_loader;
  bool written : 1, several_loaders : 1, earlier_several : 1;
  bool several_atomics : 1, atomic_stored : 1, foreign_atomic_stored : 1;
  bool copying : 1;  // an asynchronous copy will write it
};

Cell *lds_cells;
struct ShadowBuffer {
  Buffer buffer;
  Cell *cells;
};
std::vector<ShadowBuffer> shadows;
std::vector<std::pair<uint32_t, uint32_t>> first_epochs;  // of each workgroup that ran, and its number
Site last_barrier;
const char *last_out_of_bounds;
std::map<Site, bool> barrier_needed;

Cell *allocate(size_t cells) {
  void *memory = mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop(Finding{Fault::Memory});
  return static_cast<Cell *>(memory);
}

uint32_t workgroup_of(uint32_t epoch) {
  const auto next = std::upper_bound(first_epochs.begin(), first_epochs.end(), std::make_pair(epoch, ~0u));
  return std::prev(next)->second;
}

Finding finding_of(Fault kind, const Lane &lane, Site site, const void *address, int bytes, bool store) {
  Finding finding{kind};
  finding.site = site;
  finding.thread = lane.thread;
  finding.workgroup = machine.workgroup_number;
  finding.store = store;
  finding.bytes = bytes;
  locate(finding, address);
  return finding;
}

Fault race_between(const Lane &lane, int other_thread, uint32_t other_epoch) {
  if (other_epoch < machine.workgroup_epoch) return Fault::WorkgroupRace;
  return other_thread / kWave == lane.wave ? Fault::WaveRace : Fault::Race;
}

// A barrier is needed if accesses on both sides of it, and of no other, conflict.
inline void need_barrier(uint32_t other_epoch) {
  if (other_epoch + 1 == machine.epoch && other_epoch >= machine.workgroup_epoch) barrier_needed[last_barrier] = true;
}

// Whether an access of this epoch is not ordered after an earlier one.
inline bool unordered(const Lane &lane, const Record &earlier, bool several) {
  if (earlier.epoch == 0) return false;
  if (earlier.epoch < machine.workgroup_epoch) return true;  // another workgroup
  if (earlier.epoch != machine.epoch) return false;
  if (earlier.waves & ~(1u << lane.wave)) return true;
  return (earlier.thread != lane.thread || several) && earlier.wave_epoch == machine.waves[lane.wave].epoch;
}

// Remembers an access; tells whether other work-items have done the same in this epoch.
inline bool remember(Record &record, const Lane &lane, Site site, bool several) {
  const bool again = record.epoch == machine.epoch;
  several = again && (several || record.thread != lane.thread);
  record.waves = static_cast<uint16_t>((again ? record.waves : 0) | 1u << lane.wave);
  record.epoch = machine.epoch;
  record.wave_epoch = machine.waves[lane.wave].epoch;
  record.site = site;
  record.thread = static_cast<uint16_t>(lane.thread);
  return several;
}

inline void keep_foreign(Foreign &foreign, const Record &record) {
  if (record.epoch != 0 && record.epoch < machine.workgroup_epoch) foreign = {record.epoch, record.site, record.thread};
}

void conflict(Lane &lane, Site site, const void *address, int bytes, bool store, bool other_store, Site other_site,
              int other_thread, uint32_t other_epoch) {
  Finding finding = finding_of(race_between(lane, other_thread, other_epoch), lane, site, address, bytes, store);
  finding.has_other = true;
  finding.other_site = other_site;
  finding.other_thread = other_thread;
  finding.other_workgroup = workgroup_of(other_epoch);
  finding.other_store = other_store;
  found(finding);
}

enum class Kind { Plain, Atomic, FromCopy };

// Checks an access to `bytes` bytes whose cells are given, and remembers it.
void check(Lane &lane, Cell *cells, const char *address, int bytes, bool store, Site site, Space space, Kind kind) {
  const uint32_t epoch = machine.epoch;
  const bool atomic = kind == Kind::Atomic;
  const auto thread = static_cast<uint16_t>(lane.thread);
  bool reported = false;
  // A race, but for a store after a store that writes what is there already, which only its end shows.
  const auto against = [&](const Cell &cell, bool other_store, Site other_site, int other_thread, uint32_t other_epoch) {
    reported = true;
    if (store && other_store && !cell.copying && kind == Kind::Plain) {
      Overwrite overwrite{address, static_cast<uint8_t>(bytes), {}, site, other_site, other_thread, other_epoch};
      memcpy(overwrite.before, address, static_cast<size_t>(bytes));
      lane.overwrites.push_back(overwrite);
    } else {
      conflict(lane, site, address, bytes, store, other_store, other_site, other_thread, other_epoch);
    }
  };
  for (int i = 0; i < bytes; ++i) {
    Cell &cell = cells[i];
    if (cell.store.epoch != 0) {
      if (!reported && unordered(lane, cell.store, false))
        against(cell, true, cell.store.site, cell.store.thread, cell.store.epoch);
      else if (cell.store.thread != thread)
        need_barrier(cell.store.epoch);
    }
    if (!atomic && cell.atomic.epoch != 0 && (store || cell.atomic_stored)) {
      if (!reported && unordered(lane, cell.atomic, cell.several_atomics))
        against(cell, cell.atomic_stored, cell.atomic.site, cell.atomic.thread, cell.atomic.epoch);
      else if (cell.atomic.thread != thread || cell.several_atomics)
        need_barrier(cell.atomic.epoch);
    }
    if (!atomic && !reported && cell.foreign_atomic.epoch != 0 && (store || cell.foreign_atomic_stored))
      against(cell, cell.foreign_atomic_stored, cell.foreign_atomic.site, cell.foreign_atomic.thread, cell.foreign_atomic.epoch);
    if (cell.copying && kind != Kind::FromCopy && !reported) {
      reported = true;
      Finding finding = finding_of(Fault::CopyRace, lane, site, address, bytes, store);
      finding.has_other = true;
      finding.other_site = cell.store.site;
      finding.other_thread = cell.store.thread;
      finding.other_workgroup = machine.workgroup_number;
      finding.other_store = true;
      found(finding);
    }
    if (store) {
      if (cell.load.epoch != 0) {
        if (!reported && unordered(lane, cell.load, cell.several_loaders))
          against(cell, false, cell.load.site, cell.load.thread, cell.load.epoch);
        if (cell.load.thread != thread || cell.several_loaders) need_barrier(cell.load.epoch);
        if (cell.earlier_loader != thread || cell.earlier_several) need_barrier(cell.earlier_load_epoch);
      }
      if (!reported && cell.foreign_load.epoch != 0)
        against(cell, false, cell.foreign_load.site, cell.foreign_load.thread, cell.foreign_load.epoch);
      if (!atomic) remember(cell.store, lane, site, false);
      cell.written = true;
    } else if (!atomic) {
      if (space == Space::Lds && !cell.written && !reported) {
        reported = true;
        found(finding_of(Fault::Uninitialised, lane, site, address, bytes, false));
      }
      if (cell.load.epoch != epoch) {
        cell.earlier_load_epoch = cell.load.epoch;
        cell.earlier_loader = cell.load.thread;
        cell.earlier_several = cell.several_loaders;
        keep_foreign(cell.foreign_load, cell.load);
      }
      cell.several_loaders = remember(cell.load, lane, site, cell.several_loaders);
    } else if (space == Space::Lds && !cell.written && !reported) {
      reported = true;
      found(finding_of(Fault::Uninitialised, lane, site, address, bytes, false));
    }
    if (atomic) {
      if (cell.atomic.epoch < machine.workgroup_epoch) {
        if (cell.atomic.epoch != 0 && (cell.atomic_stored || !cell.foreign_atomic_stored)) {
          keep_foreign(cell.foreign_atomic, cell.atomic);
          cell.foreign_atomic_stored = cell.atomic_stored;
        }
      }
      cell.atomic_stored = store || (cell.atomic.epoch == epoch && cell.atomic_stored);
      cell.several_atomics = remember(cell.atomic, lane, site, cell.several_atomics);
    }
  }
}

// The cells of an address, null if it is in no memory of the kernel.
Cell *cells_of(const char *address, int bytes, Space &space) {
  const int64_t offset = lds_offset(address);
  if (offset >= 0 && lds_offset(address + bytes - 1) == offset + bytes - 1) {
    space = Space::Lds;
    return lds_cells + offset;
  }
  const auto value = reinterpret_cast<uint64_t>(address);
  for (const ShadowBuffer &shadow : shadows) {
    if (value >= shadow.buffer.begin && value + static_cast<unsigned>(bytes) <= shadow.buffer.end) {
      space = Space::Global;
      return shadow.cells + (value - shadow.buffer.begin);
    }
  }
  return nullptr;
}

inline bool on_stack(const void *address) {
  return static_cast<size_t>(static_cast<const char *>(address) - machine.stacks) < machine.stack_bytes * static_cast<size_t>(machine.launch.threads);
}

// One load or store of the kernel.
void access(const void *pointer, int bytes, bool store, Site site, Kind kind = Kind::Plain) {
  Lane *lane = machine.running;
  if (lane == nullptr) return;  // before the first work-item: the library's own start
  if (machine.expired) {
    lane->site = site;
    stop_expired();
  }
  if (on_stack(pointer)) return;
  settle_overwrites(*lane);
  const auto *address = static_cast<const char *>(pointer);
  Space space;
  Cell *cells = cells_of(address, bytes, space);
  if (cells == nullptr) {
    const auto value = reinterpret_cast<uint64_t>(address);
    const bool in_pool = address >= tg_pool_begin() && address < tg_pool_end();
    // Of the library's own: constants, and the byte that tells whether an array of fixed size with a constructor has begun.
    const bool own = !in_pool && value >= machine.launch.code_begin && value < machine.launch.code_end;
    const bool constant = own && (!store || bytes == 1);
    if (!constant) {
      last_out_of_bounds = address;
      found(finding_of(Fault::OutOfBounds, *lane, site, pointer, bytes, store));
    }
    return;
  }
  if (reinterpret_cast<uint64_t>(address) % static_cast<unsigned>(bytes))
    found(finding_of(Fault::Misaligned, *lane, site, pointer, bytes, store));
  check(*lane, cells, address, bytes, store, site, space, kind);
  if (store && space == Space::Lds && kind == Kind::Plain) lane->storing = true;
  const uint64_t where = space == Space::Lds ? static_cast<uint64_t>(lds_offset(address)) : reinterpret_cast<uint64_t>(address);
  if (kind == Kind::Atomic)
    count_atomic(site);
  else
    lane->accesses.push_back({where, site, static_cast<uint8_t>(bytes), store, space});
}

void access_range(const void *pointer, size_t bytes, bool store, Site site) {
  const auto *address = static_cast<const char *>(pointer);
  while (bytes > 0) {
    const int part = bytes >= 16 ? 16 : 1 << (31 - __builtin_clz(static_cast<unsigned>(bytes)));
    access(address, part, store, site);
    address += part;
    bytes -= static_cast<size_t>(part);
  }
}

void finish_copy(Lane &lane, const Copy &copy) {
  if (machine.launch.traced) {
    Space space;
    Cell *cells = cells_of(copy.lds, copy.bytes, space);
    if (cells != nullptr) {
      check(lane, cells, copy.lds, copy.bytes, true, copy.site, space, Kind::FromCopy);
      for (int i = 0; i < copy.bytes; ++i) cells[i].copying = false;
    }
  }
  if (copy.global != nullptr)
    memcpy(copy.lds, copy.global, static_cast<size_t>(copy.bytes));
  else
    memset(copy.lds, 0, static_cast<size_t>(copy.bytes));
  if (machine.launch.shadowed) copy_shadow(copy.lds, copy.global, static_cast<size_t>(copy.bytes));
}
}  // namespace

void open_memory() {
  if (!machine.launch.traced) return;
  lds_cells = allocate(machine.launch.lds_bytes + machine.launch.static_lds_bytes + 1);
  for (const Buffer &buffer : machine.launch.buffers) shadows.push_back({buffer, allocate(buffer.end - buffer.begin + 1)});
}

bool found_out_of_bounds(const void *address) {
  const auto *byte = static_cast<const char *>(address);
  return last_out_of_bounds != nullptr && byte >= last_out_of_bounds && byte < last_out_of_bounds + 16;
}

void prepare_memory() {
  const Launch &launch = machine.launch;
  // All ones is a NaN in every floating-point format that has one.
  memset(launch.lds, 0xff, launch.lds_bytes);
  if (launch.static_lds_bytes != 0) memset(launch.static_lds, 0xff, launch.static_lds_bytes);
  if (launch.shadowed) poison_lds();
  if (!launch.traced) return;
  first_epochs.emplace_back(machine.epoch, machine.workgroup_number);
  std::fill_n(lds_cells, launch.lds_bytes + launch.static_lds_bytes, Cell{});
}

void check_overwrites(Lane &lane) {
  std::vector<Overwrite> overwrites;
  overwrites.swap(lane.overwrites);
  for (const Overwrite &o : overwrites)
    if (memcmp(o.before, o.address, o.bytes) != 0)
      conflict(lane, o.site, o.address, o.bytes, true, true, o.other_site, o.other_thread, o.other_epoch);
}

void note_barrier(Site site) {
  last_barrier = site;
  barrier_needed.emplace(site, false);
}

std::string barriers_json() {
  std::string executed, needed;
  for (const auto &[site, is_needed] : barrier_needed) {
    executed += (executed.empty() ? "" : ",") + std::to_string(site);
    if (is_needed) needed += (needed.empty() ? "" : ",") + std::to_string(site);
  }
  return "{\"executed\":[" + executed + "],\"needed\":[" + needed + "]}";
}

extern "C" {
uint64_t tg_atomic_load(const void *address, int size) {
  machine.running->site = TG_SITE();  // where a fault of the access below is reported
  if (machine.launch.traced) {
    access(address, size, false, TG_SITE(), Kind::Atomic);
  } else {
    count_atomic(TG_SITE());
  }
  uint64_t value = 0;
  memcpy(&value, address, static_cast<size_t>(size));
  if (machine.launch.shadowed) return_shadow_of(address, size);
  return value;
}
void tg_atomic_store(void *address, int size, uint64_t value) {
  if (machine.launch.shadowed) store_shadow_argument(address, size, 2, TG_SITE());
  // Its conflicts as a store; it is counted with its load.
  Space space;
  Cell *cells = machine.launch.traced ? cells_of(static_cast<char *>(address), size, space) : nullptr;
  if (cells != nullptr)
    check(*machine.running, cells, static_cast<char *>(address), size, true, TG_SITE(), space, Kind::Atomic);
  memcpy(address, &value, static_cast<size_t>(size));
}

void tg_copy_async(void *lds, const void *global, int size) {
  Lane &lane = *machine.running;
  const Site site = TG_SITE();
  lane.site = site;
  settle_overwrites(lane);
  if (machine.launch.traced) {
    if (global != nullptr) access(global, size, false, site);
    access(lds, size, true, site, Kind::FromCopy);
    Space space;
    Cell *cells = cells_of(static_cast<char *>(lds), size, space);
    for (int i = 0; cells != nullptr && i < size; ++i) cells[i].copying = true;
  }
  if (lds_offset(lds) >= 0) memset(lds, 0xff, static_cast<size_t>(size));  // until it is done
  lane.copies.push_back({static_cast<char *>(lds), static_cast<const char *>(global), size, site});
}
void tg_wait_async(int outstanding) {
  Lane &lane = *machine.running;
  const size_t kept = static_cast<size_t>(std::max(outstanding, 0));
  if (lane.copies.size() <= kept) return;
  const size_t done = lane.copies.size() - kept;
  for (size_t i = 0; i < done; ++i) finish_copy(lane, lane.copies[i]);
  lane.copies.erase(lane.copies.begin(), lane.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

// The compiler calls these before each access (-fsanitize=thread, without its runtime).
void __tsan_init() {}
#define TG_ACCESS(bytes)                                                                                               \
  void __tsan_read##bytes(void *address) { access(address, bytes, false, TG_SITE()); }                                 \
  void __tsan_write##bytes(void *address) { access(address, bytes, true, TG_SITE()); }                                 \
  void __tsan_unaligned_read##bytes(void *address) { access(address, bytes, false, TG_SITE()); }                       \
  void __tsan_unaligned_write##bytes(void *address) { access(address, bytes, true, TG_SITE()); }
TG_ACCESS(1)
TG_ACCESS(2)
TG_ACCESS(4)
TG_ACCESS(8)
TG_ACCESS(16)
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  access_range(from, bytes, false, TG_SITE());
  access_range(to, bytes, true, TG_SITE());
  return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  access_range(from, bytes, false, TG_SITE());
  access_range(to, bytes, true, TG_SITE());
  return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
  access_range(to, bytes, true, TG_SITE());
  return memset(to, value, bytes);
}
}
