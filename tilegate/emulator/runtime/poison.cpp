// The shadow of an address is at address ^ kXor, a byte for a byte: set bits are not initialised. Of four bytes, the word
// at kOrigins beyond it tells where they come from: an index of `origins`. The options in program.py say the same to the
// compiler; what it calls is documented with LLVM's MemorySanitizer.
#include "poison.h"

#include <sys/mman.h>

#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "findings.h"
#include "report.h"

namespace {
constexpr uint64_t kXor = 0x500000000000, kOrigins = 0x100000000000;

// Where a value that nothing has written comes from: a variable, LDS, or a store that copied one.
struct Origin {
  uint32_t before;  // of a copy
  Site site;
  int thread;
  uint32_t workgroup;
  const char *name;
};
enum : uint32_t { kUnknown, kLds };
std::vector<Origin> origins{{0, 0, -1, 0, ""}, {0, 0, -1, 0, ""}};
std::map<std::tuple<uint32_t, Site, const char *>, uint32_t> origin_of;

uint32_t origin(uint32_t before, Site site, const char *name) {
  const auto [known, added] = origin_of.emplace(std::make_tuple(before, site, name), static_cast<uint32_t>(origins.size()));
  if (added) origins.push_back({before, site, machine.running ? machine.running->thread : -1, machine.workgroup_number, name});
  return known->second;
}

// A variable's name without what the compiler adds to it ("acc.addr", "acc.i.i"), spelled with letters, digits and _.
const char *tidy(const char *described) {
  static std::set<std::string> names;
  std::string name;
  for (; isalnum(static_cast<unsigned char>(*described)) || *described == '_'; ++described) name += *described;
  return names.insert(name).first->c_str();
}

uint8_t *shadow_of(const void *address) { return reinterpret_cast<uint8_t *>(reinterpret_cast<uint64_t>(address) ^ kXor); }
uint32_t *origin_at(const void *address) {
  return reinterpret_cast<uint32_t *>(((reinterpret_cast<uint64_t>(address) ^ kXor) + kOrigins) & ~uint64_t{3});
}

void open_shadow(uint64_t begin, uint64_t end) {
  constexpr uint64_t page = 65536;
  begin = begin / page * page;
  end = (end + page - 1) / page * page;
  for (const uint64_t offset : {uint64_t{0}, kOrigins}) {
    auto *wanted = reinterpret_cast<void *>((begin ^ kXor) + offset);
    void *memory = mmap(wanted, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (memory != wanted) stop(Finding{Fault::Memory});
  }
}

void poison(void *address, size_t bytes, uint32_t from) {
  memset(shadow_of(address), 0xff, bytes);
  uint32_t *words = origin_at(address);
  for (size_t i = 0; i < (bytes + 3) / 4; ++i) words[i] = from;
}


// The origin of what is not initialised in memory; 0 if all is.
uint32_t origin_in(const void *address, size_t bytes) {
  const uint8_t *shadow = shadow_of(address);
  for (size_t i = 0; i < bytes; ++i)
    if (shadow[i]) {
      const uint32_t from = *origin_at(static_cast<const char *>(address) + i);
      return from ? from : origin(0, 0, "");
    }
  return 0;
}

Finding finding_at(Site site, uint32_t from, int thread, uint32_t workgroup) {
  Finding finding{Fault::UninitialisedUse};
  finding.site = site;
  finding.thread = thread;
  finding.workgroup = workgroup;
  uint32_t root = from < origins.size() ? from : kUnknown;
  while (origins[root].before) root = origins[root].before;
  finding.name = origins[root].name;
  finding.space = root == kLds ? Space::Lds : Space::Global;
  if (origins[root].site) {
    finding.has_other = true;
    finding.other_site = origins[root].site;
    finding.other_thread = thread;
    finding.other_workgroup = workgroup;
  }
  return finding;
}

void depends(Site site, uint32_t from) {
  const Lane *lane = machine.running;
  if (lane != nullptr) found(finding_at(site, from, lane->thread, machine.workgroup_number));
}

// After a copy: it was made at `site`.
void chain_origins(void *to, size_t bytes, Site site) {
  for (size_t i = 0; i < bytes; i += 4) {
    auto *part = static_cast<char *>(to) + i;
    uint32_t shadow = 0;
    memcpy(&shadow, shadow_of(part), bytes - i < 4 ? bytes - i : 4);
    if (shadow) *origin_at(part) = origin(*origin_at(part), site, "");
  }
}

// Operands of a wave's matrix instruction. A lane may be one instruction ahead of another, so there are two.
struct Factors {
  uint32_t number;
  uint32_t rows[32], columns[32];  // where what is not initialised comes from
};
Factors factors[kMaxWaves][2];
uint32_t instructions[kMaxThreads];
}  // namespace

extern "C" {
__thread uint64_t __msan_param_tls[100], __msan_retval_tls[100], __msan_va_arg_tls[100], __msan_va_arg_overflow_size_tls;
__thread uint32_t __msan_param_origin_tls[200], __msan_retval_origin_tls, __msan_va_arg_origin_tls[200], __msan_origin_tls;
}

void open_shadows() {
  const Launch &launch = machine.launch;
  const auto stacks = reinterpret_cast<uint64_t>(machine.stacks);
  open_shadow(stacks, stacks + machine.stack_bytes * static_cast<size_t>(launch.threads));
  open_shadow(launch.code_begin, launch.code_end);
  for (const Buffer &buffer : launch.buffers) open_shadow(buffer.begin, buffer.end);
}

void poison_lds() {
  const Launch &launch = machine.launch;
  poison(launch.lds, launch.lds_bytes, kLds);
  if (launch.static_lds_bytes) poison(launch.static_lds, launch.static_lds_bytes, kLds);
}

void look_at_results() {
  for (const Buffer &buffer : machine.launch.buffers) {
    for (uint64_t address = buffer.begin; address < buffer.end; ++address) {
      if (*shadow_of(reinterpret_cast<void *>(address)) == 0) continue;
      const uint32_t from = *origin_at(reinterpret_cast<void *>(address));
      const Origin &store = origins[from < origins.size() ? from : kUnknown];
      Finding finding = finding_at(store.site, from, store.thread, store.workgroup);
      finding.store = true;
      finding.parameter = buffer.parameter;
      finding.offset = static_cast<int64_t>(address - buffer.begin);
      found(finding);
      address |= 3;
    }
  }
}

void copy_shadow(void *to, const void *from, size_t bytes) {
  if (from == nullptr) {
    memset(shadow_of(to), 0, bytes);
    return;
  }
  memmove(shadow_of(to), shadow_of(from), bytes);
  for (size_t i = 0; i < bytes; i += 4) *origin_at(static_cast<char *>(to) + i) = *origin_at(static_cast<const char *>(from) + i);
}

void bring_shadow(Lane &lane, Site site) {
  lane.shadow = __msan_param_tls[1];
  lane.shadow_origin = __msan_param_origin_tls[2];
  if (__msan_param_tls[2]) depends(site, __msan_param_origin_tls[4]);
  if (lane.exchange == TgExchange::Ballot && lane.shadow) depends(site, lane.shadow_origin);
  if (lane.exchange == TgExchange::Ballot) lane.shadow = 0;
}

void take_shadow(const Lane &lane) {
  __msan_retval_tls[0] = lane.shadow;
  __msan_retval_origin_tls = lane.shadow_origin;
}

void return_shadow_of(const void *address, int bytes) {
  __msan_retval_tls[0] = 0;
  memcpy(&__msan_retval_tls[0], shadow_of(address), static_cast<size_t>(bytes));
  __msan_retval_origin_tls = *origin_at(address);
}

void store_shadow_argument(void *address, int bytes, int argument, Site site) {
  memcpy(shadow_of(address), &__msan_param_tls[argument], static_cast<size_t>(bytes));
  if (__msan_param_tls[argument]) *origin_at(address) = origin(__msan_param_origin_tls[2 * argument], site, "");
}

extern "C" {
void __msan_init() {}
void __msan_warning_with_origin(uint32_t from) { depends(TG_SITE(), from); }
void __msan_warning_with_origin_noreturn(uint32_t from) { depends(TG_SITE(), from); }
void __msan_set_alloca_origin_with_descr(void *address, uint64_t bytes, uint32_t *id, const char *name) {
  if (*id == 0) *id = origin(0, TG_SITE(), tidy(name));
  poison(address, bytes, *id);
}
uint32_t __msan_chain_origin(uint32_t from) { return origin(from, TG_SITE(), ""); }
void __msan_set_origin(const void *address, uint64_t bytes, uint32_t from) {
  for (uint64_t i = 0; i < bytes; i += 4) *origin_at(static_cast<const char *>(address) + i) = from;
}
#define TG_SHADOWED_ACCESS(bytes, type)                                                                                \
  void __msan_maybe_warning_##bytes(type shadow, uint32_t from) {                                                      \
    if (shadow) depends(TG_SITE(), from);                                                                              \
  }                                                                                                                    \
  void __msan_maybe_store_origin_##bytes(type shadow, void *address, uint32_t from) {                                  \
    if (shadow) __msan_set_origin(address, bytes, origin(from, TG_SITE(), ""));                                        \
  }
TG_SHADOWED_ACCESS(1, uint8_t)
TG_SHADOWED_ACCESS(2, uint16_t)
TG_SHADOWED_ACCESS(4, uint32_t)
TG_SHADOWED_ACCESS(8, uint64_t)
void *__msan_memcpy(void *to, const void *from, size_t bytes) {
  copy_shadow(to, from, bytes);
  chain_origins(to, bytes, TG_SITE());
  return memcpy(to, from, bytes);
}
void *__msan_memmove(void *to, const void *from, size_t bytes) {
  copy_shadow(to, from, bytes);
  chain_origins(to, bytes, TG_SITE());
  return memmove(to, from, bytes);
}
void *__msan_memset(void *to, int value, size_t bytes) {
  copy_shadow(to, nullptr, bytes);
  return memset(to, value, bytes);
}

// Around a matrix instruction: an element of D is initialised if its of C is, and row of A and column of B are.
void tg_bring_factors(const TgMatrix *shape, const void *a, const void *b) {
  const Lane &lane = *machine.running;
  const uint32_t number = ++instructions[lane.thread];
  Factors &with = factors[lane.wave][number % 2];
  if (with.number != number) with = Factors{number, {}, {}};
  const unsigned values = shape->rows * shape->depth / kWave, own = static_cast<unsigned>(lane.lane) % shape->rows;
  const size_t size = shape->a == TgElement::Float ? 4 : shape->a == TgElement::Half || shape->a == TgElement::BFloat ? 2 : 1;
  if (const uint32_t from = origin_in(a, values * size)) with.rows[own] = from;
  if (const uint32_t from = origin_in(b, values * size)) with.columns[own] = from;
}
void tg_take_factors(const TgMatrix *shape, const void *c, void *d) {
  const Lane &lane = *machine.running;
  const Factors &with = factors[lane.wave][instructions[lane.thread] % 2];
  const unsigned R = shape->rows, l = static_cast<unsigned>(lane.lane);
  for (unsigned v = 0; v < R * R / kWave; ++v) {
    const unsigned row = R == 16 ? 4 * (l / R) + v : 8 * (v / 4) + 4 * (l / R) + v % 4;
    uint32_t from = origin_in(static_cast<const char *>(c) + 4 * v, 4);
    if (!from) from = with.rows[row] ? with.rows[row] : with.columns[l % R];
    auto *element = static_cast<char *>(d) + 4 * v;
    memset(shadow_of(element), from ? 0xff : 0, 4);
    if (from) *origin_at(element) = from;
  }
}
}
