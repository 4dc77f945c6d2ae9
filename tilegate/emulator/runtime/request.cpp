#include "request.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <sstream>

namespace {
constexpr uint64_t kGuard = 1 << 20;  // between buffers: more than a tile's row, less than address space costs

[[noreturn]] void refuse(const std::string &what) {
  fprintf(stderr, "emulator: %s\n", what.c_str());
  _exit(2);
}

std::string read_all(int descriptor) {
  std::string text;
  char part[4096];
  ssize_t got;
  while ((got = read(descriptor, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(got));
  return text;
}
std::deque<uint64_t> values;  // of the arguments; never moved
}  // namespace

Request read_request(int request, int memory) {
  Request wanted{};
  Launch &launch = machine.launch;
  std::istringstream text(read_all(request));
  std::string word;
  while (text >> word) {
    if (word == "library") {
      std::getline(text >> std::ws, wanted.library);
    } else if (word == "traced") {
      text >> launch.traced;
    } else if (word == "shadowed") {
      text >> launch.shadowed;
    } else if (word == "flushes") {
      text >> launch.flushes_subnormals;
    } else if (word == "rounding") {
      int rounding;
      text >> rounding;
      launch.rounding = static_cast<Launch::Rounding>(rounding);
    } else if (word == "grid") {
      text >> launch.grid.x >> launch.grid.y >> launch.grid.z;
    } else if (word == "block") {
      text >> launch.block.x >> launch.block.y >> launch.block.z;
    } else if (word == "schedule") {
      int waves, workgroups;
      text >> wanted.schedule.descending >> waves >> wanted.schedule.seed >> workgroups;
      wanted.schedule.workgroups = static_cast<Schedule::Workgroups>(workgroups);
      wanted.schedule.waves = static_cast<Schedule::Waves>(waves);
    } else if (word == "limits") {
      text >> wanted.seconds >> wanted.memory_bytes;
    } else if (word == "lds") {
      text >> launch.lds_limit >> launch.lds_banks;
    } else if (word == "processes") {
      text >> wanted.processes;
    } else if (word == "scalar") {
      uint64_t bits;
      text >> bits;
      values.push_back(bits);
      launch.arguments.push_back(&values.back());
    } else if (word == "buffer") {  // offset in the file, mapped bytes, where it begins in them, its size, whose it is
      uint64_t offset, mapped, skew, bytes;
      int parameter;
      text >> offset >> mapped >> skew >> bytes >> parameter;
      void *reserved = mmap(nullptr, mapped + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (reserved == MAP_FAILED) refuse("no address space for the arguments");
      char *begin = static_cast<char *>(reserved) + kGuard;
      if (mapped > 0 && mmap(begin, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, static_cast<off_t>(offset)) == MAP_FAILED)
        refuse("cannot map the arguments");
      const auto address = reinterpret_cast<uint64_t>(begin) + skew;
      launch.buffers.push_back({address, address + bytes, parameter});
    } else if (word == "array") {  // the buffer, and where the argument begins in it
      size_t buffer;
      uint64_t offset;
      text >> buffer >> offset;
      if (buffer >= launch.buffers.size()) refuse("an array of no buffer");
      values.push_back(launch.buffers[buffer].begin + offset);
      launch.arguments.push_back(&values.back());
    } else {
      refuse("unknown word '" + word + "' in the request");
    }
    if (!text) refuse("no value for '" + word + "' in the request");
  }
  launch.threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  launch.waves = (launch.threads + kWave - 1) / kWave;
  if (launch.threads < 1 || launch.threads > kMaxThreads) refuse("a workgroup has 1 to 1024 work-items");
  return wanted;
}
