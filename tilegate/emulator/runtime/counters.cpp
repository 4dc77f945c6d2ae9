// Models, with their assumptions (docs/emulator.md):
//  - An instruction of a wave is the n-th access that its lanes made from one place since their last common operation.
//  - LDS: banks.cpp.
//  - Global memory: lines of 128 bytes. Least possible: the bytes of the instruction, packed.
//  - Workgroup n runs on XCD n mod 8; each line counts once for each XCD that reads it.
#include "counters.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "banks.h"
#include "memory.h"

namespace {
constexpr int kXcds = 8, kLine = 128;

struct Place {
  uint64_t loads, stores, lanes, bytes, ideal, modelled, lines, least, matrices, exchanges, barriers, atomics;
  uint32_t worst;
  Space space;
  uint8_t size;
};
std::unordered_map<Site, Place> places;
std::unordered_set<uint64_t> lines_of_xcd[kXcds];
uint64_t requested_of_xcd[kXcds];

void account(const Access *const *lanes, uint64_t mask) {
  const Access &first = *lanes[__builtin_ctzll(mask)];
  Place &place = places[first.site];
  const auto count = static_cast<uint64_t>(__builtin_popcountll(mask));
  place.space = first.space;
  place.size = first.bytes;
  ++(first.store ? place.stores : place.loads);
  place.lanes += count;
  place.bytes += count * first.bytes;
  if (first.space == Space::Lds) {
    uint32_t ideal = 0;
    place.modelled += lds_cycles(lanes, mask, ideal, place.worst);
    place.ideal += ideal;
    return;
  }
  uint64_t lines[2 * kWave];
  size_t used = 0;
  for (uint64_t rest = mask; rest; rest &= rest - 1) {
    const Access &access = *lanes[__builtin_ctzll(rest)];
    lines[used++] = access.address / kLine;
    const uint64_t last = (access.address + access.bytes - 1) / kLine;
    if (last != lines[used - 1]) lines[used++] = last;
  }
  std::sort(lines, lines + used);
  used = static_cast<size_t>(std::unique(lines, lines + used) - lines);
  place.lines += used;
  place.least += (count * first.bytes + kLine - 1) / kLine;
  if (first.store) return;
  const int xcd = static_cast<int>(machine.workgroup_number % kXcds);
  requested_of_xcd[xcd] += used * kLine;
  lines_of_xcd[xcd].insert(lines, lines + used);
}

bool same_places(const Lane *lanes, int count) {
  const auto &first = lanes[0].accesses;
  for (int l = 1; l < count; ++l) {
    const auto &other = lanes[l].accesses;
    if (other.size() != first.size()) return false;
    for (size_t i = 0; i < first.size(); ++i)
      if (other[i].site != first[i].site || other[i].space != first[i].space) return false;
  }
  return true;
}

struct Instruction {
  const Access *lanes[kWave];
  uint64_t mask = 0;
};

void account_by_place(const Lane *lanes, int count) {
  std::unordered_map<uint64_t, Instruction> instructions;
  std::vector<uint64_t> order;
  for (int l = 0; l < count; ++l) {
    std::unordered_map<uint64_t, uint32_t> occurrences;
    for (const Access &access : lanes[l].accesses) {
      const uint64_t place = static_cast<uint64_t>(access.site) << 8 | static_cast<uint64_t>(access.space);
      const uint64_t key = place << 24 | (occurrences[place]++ & 0xffffff);
      Instruction &instruction = instructions[key];
      if (instruction.mask == 0) order.push_back(key);
      instruction.lanes[l] = &access;
      instruction.mask |= 1ull << l;
    }
  }
  for (const uint64_t key : order) account(instructions[key].lanes, instructions[key].mask);
}
}  // namespace

void account_wave(const Wave &wave) {
  Lane *lanes = &machine.lanes[wave.first_thread];
  const int count = std::min(kWave, machine.launch.threads - wave.first_thread);
  if (same_places(lanes, count)) {
    const uint64_t mask = count == kWave ? ~0ull : (1ull << count) - 1;
    const Access *row[kWave];
    for (size_t i = 0; i < lanes[0].accesses.size(); ++i) {
      for (int l = 0; l < count; ++l) row[l] = &lanes[l].accesses[i];
      account(row, mask);
    }
  } else {
    account_by_place(lanes, count);
  }
  for (int l = 0; l < count; ++l) lanes[l].accesses.clear();
}

void count_matrix(Site site) { ++places[site].matrices; }
void count_exchange(Site site) { ++places[site].exchanges; }
void count_atomic(Site site) { ++places[site].atomics; }
void count_barrier(Site site) {
  ++places[site].barriers;
  if (machine.launch.traced) note_barrier(site);
}

std::string counters_json(uint32_t workgroups) {
  std::string text = "{\"workgroups\":" + std::to_string(workgroups) + ",\"places\":[";
  bool first = true;
  for (const auto &[site, place] : places) {
    char line[512];
    snprintf(line, sizeof line,
             "%s[%u,%d,%d,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%u,%llu,%llu,%llu,%llu]", first ? "" : ",", site,
             static_cast<int>(place.space), place.size, static_cast<unsigned long long>(place.loads),
             static_cast<unsigned long long>(place.stores), static_cast<unsigned long long>(place.lanes),
             static_cast<unsigned long long>(place.bytes), static_cast<unsigned long long>(place.ideal),
             static_cast<unsigned long long>(place.modelled), static_cast<unsigned long long>(place.lines),
             static_cast<unsigned long long>(place.least), place.worst, static_cast<unsigned long long>(place.matrices),
             static_cast<unsigned long long>(place.exchanges), static_cast<unsigned long long>(place.barriers),
             static_cast<unsigned long long>(place.atomics));
    text += line;
    first = false;
  }
  text += "],\"xcd\":[";
  for (int xcd = 0; xcd < kXcds; ++xcd)
    text += (xcd ? ",[" : "[") + std::to_string(requested_of_xcd[xcd]) + "," + std::to_string(lines_of_xcd[xcd].size() * kLine) + "]";
  return text + "]}";
}
