#include "findings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

#include "processes.h"
#include "report.h"

namespace {
constexpr int kKept = 64;  // of each kind: an unrolled loop has hundreds of places for one line
struct Counted {
  Finding finding;
  uint64_t count;
};
std::vector<Counted> kept;
int kept_of[static_cast<size_t>(Fault::LdsOverflow) + 1];
std::map<std::tuple<Fault, Site, Site>, size_t> index_of;
}  // namespace

void found(const Finding &finding) {
  // Which of two accesses came last depends on the schedule: both orders are one finding.
  const auto key = std::make_tuple(finding.kind, std::min(finding.site, finding.other_site), std::max(finding.site, finding.other_site));
  const auto known = index_of.find(key);
  if (known != index_of.end()) {
    ++kept[known->second].count;
  } else if (kept_of[static_cast<size_t>(finding.kind)] < kKept) {
    ++kept_of[static_cast<size_t>(finding.kind)];
    index_of.emplace(key, kept.size());
    kept.push_back({finding, 1});
  }
}

void stop(const Finding &finding) {
  kept_of[static_cast<size_t>(finding.kind)] = 0;  // the one that ends the run must be seen
  index_of.clear();
  found(finding);
  end_run();
}

void end_run() {
  end_at_turn(machine.turn);
  finish_report(false);
  _exit(0);
}

void locate(Finding &finding, const void *address) {
  const int64_t offset = lds_offset(address);
  const auto value = reinterpret_cast<uint64_t>(address);
  const Launch &launch = machine.launch;
  const auto pool = reinterpret_cast<uint64_t>(tg_pool_begin()), pool_end = reinterpret_cast<uint64_t>(tg_pool_end());
  if (offset >= 0) {
    finding.space = Space::Lds;
    finding.offset = offset;
    return;
  }
  if (value >= pool && value < pool_end) {
    finding.space = Space::Lds;
    finding.offset = static_cast<int64_t>(value - reinterpret_cast<uint64_t>(launch.lds));
    return;
  }
  finding.space = Space::Global;
  uint64_t best = ~0ull;
  for (const Buffer &buffer : launch.buffers) {
    const uint64_t distance = value < buffer.begin ? buffer.begin - value : value >= buffer.end ? value - buffer.end : 0;
    if (distance >= best) continue;
    best = distance;
    finding.parameter = buffer.parameter;
    finding.offset = static_cast<int64_t>(value - buffer.begin);
  }
}

std::string findings_json() {
  std::string text = "[";
  for (const Counted &counted : kept) {
    const Finding &f = counted.finding;
    char line[512];
    snprintf(line, sizeof line,
             "%s{\"kind\":%d,\"site\":%u,\"thread\":%d,\"workgroup\":%u,\"store\":%s,\"space\":%d,\"bytes\":%d,\"offset\":%lld,"
             "\"parameter\":%d,\"other\":%s,\"other_site\":%u,\"other_thread\":%d,\"other_workgroup\":%u,\"other_store\":%s,"
             "\"lanes\":\"%llx\",\"other_lanes\":\"%llx\",\"name\":\"%.64s\",\"count\":%llu}",
             text.size() > 1 ? "," : "", static_cast<int>(f.kind), f.site, f.thread, f.workgroup, f.store ? "true" : "false",
             static_cast<int>(f.space), f.bytes, static_cast<long long>(f.offset), f.parameter, f.has_other ? "true" : "false",
             f.other_site, f.other_thread, f.other_workgroup, f.other_store ? "true" : "false",
             static_cast<unsigned long long>(f.lanes), static_cast<unsigned long long>(f.other_lanes), f.name,
             static_cast<unsigned long long>(counted.count));
    text += line;
  }
  return text + "]";
}
