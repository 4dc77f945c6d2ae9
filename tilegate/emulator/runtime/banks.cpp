// A group of lanes takes as many cycles as the fullest bank has different 4-byte words to serve.
#include "banks.h"

#include <algorithm>

namespace {
constexpr int kMostBanks = 64;

constexpr uint64_t lanes(int first, int last) { return (last == 63 ? 0 : 1ull << (last + 1)) - (1ull << first); }

// Groups of the lower 32 lanes; the upper 32 follow in the same way.
// 16-byte reads with 32 banks: AMD's CK-Tile documentation, "Understanding AMD GPU LDS and Bank Conflicts".
constexpr uint64_t kReads16Banks32[] = {lanes(0, 3) | lanes(20, 23), lanes(4, 7) | lanes(16, 19),
                                        lanes(8, 11) | lanes(28, 31), lanes(12, 15) | lanes(24, 27)};
// 16-byte reads of gfx950 as measured on an MI355X: Hu et al., HipKittens, arXiv 2511.08083.
constexpr uint64_t kReads16Banks64[] = {lanes(0, 3) | lanes(12, 15) | lanes(20, 27), lanes(4, 11) | lanes(16, 19) | lanes(28, 31)};
constexpr uint64_t kOf32[] = {lanes(0, 31)};
constexpr uint64_t kOf16[] = {lanes(0, 15), lanes(16, 31)};
constexpr uint64_t kOf8[] = {lanes(0, 7), lanes(8, 15), lanes(16, 23), lanes(24, 31)};

struct Service {
  const uint64_t *groups;
  int count, banks;
};

template <int N>
Service service(const uint64_t (&groups)[N], int banks) {
  return {groups, N, banks};
}

Service service_of(const Access &access) {
  const bool wide = machine.launch.lds_banks == 64 && !access.store;  // the paper's 64 banks are of reads of 8 and 16 bytes
  if (access.bytes <= 4) return service(kOf32, 32);
  if (access.bytes == 8) return wide ? service(kOf32, 64) : service(kOf16, 32);
  if (access.bytes != 16 || access.store) return service(kOf8, 32);
  return wide ? service(kReads16Banks64, 64) : service(kReads16Banks32, 32);
}
}  // namespace

uint32_t lds_cycles(const Access *const *lanes, uint64_t mask, uint32_t &ideal, uint32_t &worst) {
  const Access &first = *lanes[__builtin_ctzll(mask)];
  const Service by = service_of(first);
  uint32_t cycles = 0;
  for (int group = 0; group < 2 * by.count; ++group) {
    const uint64_t members = mask & (by.groups[group % by.count] << (group / by.count * 32));
    if (members == 0) continue;
    ++ideal;
    static uint64_t words[kMostBanks][kWave];  // a lane's stack, on which this runs, is too small for it
    uint8_t count[kMostBanks] = {};
    uint32_t fullest = 1;
    for (uint64_t rest = members; rest; rest &= rest - 1) {
      const uint64_t address = lanes[__builtin_ctzll(rest)]->address;
      for (uint64_t word = address / 4; word <= (address + first.bytes - 1) / 4; ++word) {
        const int bank = static_cast<int>(word % static_cast<uint64_t>(by.banks));
        if (std::find(words[bank], words[bank] + count[bank], word) != words[bank] + count[bank]) continue;
        words[bank][count[bank]++] = word;
        fullest = std::max<uint32_t>(fullest, count[bank]);
      }
    }
    cycles += fullest;
    worst = std::max(worst, fullest);
  }
  return cycles;
}
