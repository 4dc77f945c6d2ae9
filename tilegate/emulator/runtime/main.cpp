// One run of one kernel: arguments are the descriptors of the request, of the memory of its buffers, and of the report.
// The process that is started watches those that run it.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "counters.h"
#include "findings.h"
#include "memory.h"
#include "poison.h"
#include "processes.h"
#include "report.h"
#include "request.h"
#include "sandbox.h"

namespace {
Request request;
int report_descriptor = -1;
uint32_t finished_workgroups;
const char *pool;
size_t pool_bytes;

template <typename T> T *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == nullptr) {
    fprintf(stderr, "emulator: the kernel's library lacks %s\n", name);
    _exit(2);
  }
  return static_cast<T *>(found);
}

int find_extent(dl_phdr_info *info, size_t, void *wanted) {
  Launch &launch = machine.launch;
  const auto inside = reinterpret_cast<uint64_t>(wanted);
  uint64_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      end = std::max<uint64_t>(end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  if (inside < info->dlpi_addr || inside >= end) return 0;
  launch.code_begin = info->dlpi_addr;
  launch.code_end = end;
  return 1;
}

void load_kernel(const std::string &path) {
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "emulator: %s\n", dlerror());
    _exit(2);
  }
  Launch &launch = machine.launch;
  launch.kernel = reinterpret_cast<void (*)(void **)>(symbol<void>(library, "tg_kernel"));
  pool = symbol<char>(library, "tg_lds_pool");
  pool_bytes = *symbol<const size_t>(library, "tg_lds_pool_bytes");
  launch.lds = symbol<char>(library, "tg_lds");
  launch.lds_bytes = *symbol<const size_t>(library, "tg_lds_bytes");
  launch.static_lds = *symbol<char *const>(library, "tg_static_lds_begin");
  launch.static_lds_bytes = static_cast<size_t>(*symbol<char *const>(library, "tg_static_lds_end") - launch.static_lds);
  if (dl_iterate_phdr(find_extent, reinterpret_cast<void *>(launch.kernel)) == 0) abort();
  // Pages around the dynamic LDS: an access beyond them faults even in a run without checks.
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uint64_t>(pool), lds = reinterpret_cast<uint64_t>(launch.lds);
  const uint64_t guard = (lds + launch.lds_bytes + page - 1) / page * page;
  mprotect(reinterpret_cast<void *>(guard), begin + pool_bytes - guard, PROT_NONE);
  mprotect(reinterpret_cast<void *>(begin), (lds - begin) / page * page, PROT_NONE);
}

void make_stacks() {
  // Lanes take turns every few nanoseconds: on small pages their stacks alone would be more than the TLB holds.
  const Launch &launch = machine.launch;
  machine.stack_bytes = launch.shadowed ? kShadowedStackBytes : kStackBytes;
  const size_t bytes = machine.stack_bytes * static_cast<size_t>(launch.threads);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop(Finding{Fault::Memory});
  machine.stacks = static_cast<char *>(memory);
  if (!launch.shadowed) madvise(memory, bytes, MADV_HUGEPAGE);
}

// What one process does.
void run_workgroups(int report) {
  report_descriptor = report;
  std::set_new_handler([] { stop(Finding{Fault::Memory}); });
  limit_process(request.seconds, request.memory_bytes);
  watch_signals();
  load_kernel(request.library);
  make_stacks();
  open_memory();
  const Launch &launch = machine.launch;
  if (launch.lds_bytes + launch.static_lds_bytes > launch.lds_limit) {
    Finding finding{Fault::LdsOverflow};
    finding.offset = static_cast<int64_t>(launch.lds_bytes + launch.static_lds_bytes);
    finding.bytes = static_cast<int>(launch.static_lds_bytes);
    stop(finding);
  }
  if (launch.shadowed) open_shadows();
  const uint64_t workgroups = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  for (uint64_t turn; take_turn(workgroups, turn);) {
    machine.turn = turn;
    run_workgroup(static_cast<uint32_t>(workgroup_of_turn(turn, workgroups)));
    ++finished_workgroups;
  }
  if (launch.shadowed) look_at_results();
  finish_report(true);
}
}  // namespace

const char *tg_pool_begin() { return pool; }
const char *tg_pool_end() { return pool + pool_bytes; }

void finish_report(bool completed) {
  std::string text = std::string("{\"completed\":") + (completed ? "true" : "false") + ",\"findings\":" + findings_json() +
                     ",\"barriers\":" + barriers_json() + ",\"counters\":" + counters_json(finished_workgroups) + "}";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t wrote = write(report_descriptor, text.data() + sent, text.size() - sent);
    if (wrote <= 0) break;
    sent += static_cast<size_t>(wrote);
  }
}

int main(int count, char **words) {
  if (count != 4) {
    fprintf(stderr, "emulator: started by tilegate, with three descriptors\n");
    return 2;
  }
  request = read_request(atoi(words[1]), atoi(words[2]));
  set_schedule(request.schedule);
  watch_processes(request.processes, request.seconds, atoi(words[3]), run_workgroups);
}
