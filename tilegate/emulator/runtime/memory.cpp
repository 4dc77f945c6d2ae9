// Which accesses are ordered. Inside a workgroup only a barrier orders the accesses of two work-items; `Machine::epoch`
// counts barriers, so two accesses of one epoch by different work-items conflict when one is a store. (The chip runs the
// lanes of a wave in step, which this emulator does not: see Fault::WaveRace.) Workgroups are never ordered. Atomics are
// ordered among themselves.
#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "counters.h"
#include "findings.h"
#include "rendezvous.h"
#include "report.h"

namespace {
// What is known of one byte: its last store and its last loads.
struct Cell {
  uint32_t store_epoch, store_wave_epoch;
  Site store_site;
  uint32_t load_epoch, load_wave_epoch;
  Site load_site;
  uint32_t earlier_load_epoch;  // loads of the epoch before, for barriers that are needed
  uint16_t storer, loader, earlier_loader;
  uint16_t load_waves;  // which waves loaded in load_epoch
  bool written, atomic_store, atomic_load, several_loaders, earlier_several;
  bool copying;  // an asynchronous copy will write it
};

Cell *lds_cells;
struct ShadowBuffer {
  Buffer buffer;
  Cell *cells;
};
std::vector<ShadowBuffer> shadows;
std::vector<uint32_t> first_epochs;  // of each workgroup that ran
Site last_barrier;
const char *last_out_of_bounds;
std::map<Site, bool> barrier_needed;

Cell *allocate(size_t cells) {
  void *memory = mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop(Finding{Fault::Memory});
  return static_cast<Cell *>(memory);
}

uint32_t workgroup_of(uint32_t epoch) {
  const auto next = std::upper_bound(first_epochs.begin(), first_epochs.end(), epoch);
  return static_cast<uint32_t>(next - first_epochs.begin()) - 1;
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

// Whether an access of this epoch conflicts with an earlier one that `cell` remembers.
inline bool unordered(const Lane &lane, int other_thread, uint32_t other_epoch, uint32_t other_wave_epoch) {
  if (other_epoch < machine.workgroup_epoch) return true;  // another workgroup
  if (other_epoch != machine.epoch || other_thread == lane.thread) return false;
  return other_thread / kWave != lane.wave || other_wave_epoch == machine.waves[lane.wave].epoch;
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
  const uint32_t epoch = machine.epoch, wave_epoch = machine.waves[lane.wave].epoch;
  const bool atomic = kind == Kind::Atomic;
  const auto thread = static_cast<uint16_t>(lane.thread);
  bool reported = false;
  for (int i = 0; i < bytes; ++i) {
    Cell &cell = cells[i];
    if (cell.written && cell.store_epoch != 0 && !(atomic && cell.atomic_store)) {
      if (!reported && unordered(lane, cell.storer, cell.store_epoch, cell.store_wave_epoch)) {
        reported = true;
        if (store && !cell.copying && kind == Kind::Plain) {  // a race unless it stores the same value
          Overwrite overwrite{address, static_cast<uint8_t>(bytes), {}, site, cell.store_site, cell.storer, cell.store_epoch};
          memcpy(overwrite.before, address, static_cast<size_t>(bytes));
          lane.overwrites.push_back(overwrite);
        } else {
          conflict(lane, site, address, bytes, store, true, cell.store_site, cell.storer, cell.store_epoch);
        }
      } else if (cell.storer != thread) {
        need_barrier(cell.store_epoch);
      }
    }
    if (cell.copying && kind != Kind::FromCopy && !reported) {
      reported = true;
      Finding finding = finding_of(Fault::CopyRace, lane, site, address, bytes, store);
      finding.has_other = true;
      finding.other_site = cell.store_site;
      finding.other_thread = cell.storer;
      finding.other_workgroup = machine.workgroup_number;
      finding.other_store = true;
      found(finding);
    }
    if (store) {
      if (cell.load_epoch != 0 && !(atomic && cell.atomic_load)) {
        if (!reported && (cell.load_waves & ~(1u << lane.wave)) && cell.load_epoch == epoch) {
          reported = true;
          conflict(lane, site, address, bytes, true, false, cell.load_site, cell.loader, cell.load_epoch);
        } else if (!reported && unordered(lane, cell.loader, cell.load_epoch, cell.load_wave_epoch)) {
          reported = true;
          conflict(lane, site, address, bytes, true, false, cell.load_site, cell.loader, cell.load_epoch);
        }
        if (cell.loader != thread || cell.several_loaders) need_barrier(cell.load_epoch);
        if (cell.earlier_loader != thread || cell.earlier_several) need_barrier(cell.earlier_load_epoch);
      }
      cell.store_epoch = epoch;
      cell.store_wave_epoch = wave_epoch;
      cell.store_site = site;
      cell.storer = thread;
      cell.atomic_store = atomic;
      cell.written = true;
    } else {
      if (space == Space::Lds && !cell.written && !reported) {
        reported = true;
        found(finding_of(Fault::Uninitialised, lane, site, address, bytes, false));
      }
      if (cell.load_epoch != epoch) {
        cell.earlier_load_epoch = cell.load_epoch;
        cell.earlier_loader = cell.loader;
        cell.earlier_several = cell.several_loaders;
        cell.load_epoch = epoch;
        cell.load_waves = 0;
        cell.several_loaders = false;
      } else if (cell.loader != thread) {
        cell.several_loaders = true;
      }
      cell.load_waves |= static_cast<uint16_t>(1u << lane.wave);
      cell.load_wave_epoch = wave_epoch;
      cell.load_site = site;
      cell.loader = thread;
      cell.atomic_load = atomic;
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
  return static_cast<size_t>(static_cast<const char *>(address) - machine.stacks) < kStackBytes * kMaxThreads;
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
    const bool constant = !store && !in_pool && value >= machine.launch.code_begin && value < machine.launch.code_end;
    if (!constant) {
      last_out_of_bounds = address;
      found(finding_of(Fault::OutOfBounds, *lane, site, pointer, bytes, store));
    }
    return;
  }
  if (reinterpret_cast<uint64_t>(address) % static_cast<unsigned>(bytes))
    found(finding_of(Fault::Misaligned, *lane, site, pointer, bytes, store));
  check(*lane, cells, address, bytes, store, site, space, kind);
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
  if (!launch.traced) return;
  first_epochs.push_back(machine.epoch);
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
  return value;
}
void tg_atomic_store(void *address, int size, uint64_t value) {
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
