#include "processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

namespace {
constexpr size_t kLongest = 16 << 20;  // bytes of a report
constexpr std::chrono::seconds kGrace{2};  // for a process to report that its time has passed

// In memory that all processes share.
struct Shared {
  std::atomic<uint64_t> next{0}, last{~0ull};
};
Shared *shared;

struct Process {
  pid_t id;
  int pipe;
  std::string report;
  int status;
  bool running, open;
};

// What is there to be read, without waiting for more.
void read_report(Process &process) {
  static char part[1 << 16];
  ssize_t got;
  while ((got = read(process.pipe, part, sizeof part)) > 0) {
    process.report.append(part, static_cast<size_t>(got));
    if (process.report.size() > kLongest) {
      kill(process.id, SIGKILL);
      break;
    }
  }
  if (got >= 0) process.open = false;
}

void look_at(Process &process) {
  int status;
  const bool ended = waitpid(process.id, &status, WNOHANG) == process.id;
  if (process.open) read_report(process);
  if (!ended) return;
  process.running = process.open = false;  // the pipe may still be held by a process that this one started
  process.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void write_all(int descriptor, const char *data, size_t size) {
  for (ssize_t wrote; size > 0 && (wrote = write(descriptor, data, size)) > 0; data += wrote, size -= static_cast<size_t>(wrote)) {
  }
}

std::vector<Process> start(int processes, int report, void (*work)(int)) {
  std::vector<Process> all;
  const pid_t watcher = getpid();
  while (static_cast<int>(all.size()) < processes) {
    int ends[2];
    const pid_t id = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 ? fork() : -1;
    if (id == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != watcher) _exit(1);
      close(report);
      close(ends[0]);
      for (const Process &other : all) close(other.pipe);
      fcntl(ends[1], F_SETFL, 0);
      work(ends[1]);
      _exit(0);
    }
    if (id < 0) break;  // as many as the machine lets us have
    close(ends[1]);
    all.push_back({id, ends[0], {}, 0, true, true});
  }
  return all;
}
}  // namespace

void watch_processes(int processes, double seconds, int report, void (*work)(int)) {
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) shared = new (memory) Shared;
  std::vector<Process> all;
  if (shared != nullptr) all = start(processes, report, work);
  if (all.empty()) {
    fprintf(stderr, "emulator: no process can be started to run the kernel\n");
    _exit(2);
  }
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + kGrace + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  for (;;) {
    std::vector<pollfd> watched{{report, 0, 0}};
    bool running = false, ending = false;
    for (const Process &process : all) {
      running |= process.running;
      ending |= process.running && !process.open;
      if (process.open) watched.push_back({process.pipe, POLLIN, 0});
    }
    if (!running) break;
    poll(watched.data(), watched.size(), ending ? 1 : 20);
    if (watched[0].revents & POLLERR) kill(0, SIGKILL);  // nobody is there to read what comes of it: this process ends, too
    for (Process &process : all) {
      if (process.running && Clock::now() > deadline) kill(process.id, SIGKILL);
      if (process.running) look_at(process);
    }
  }
  for (const Process &process : all) {
    const std::string head = std::to_string(process.status) + " " + std::to_string(process.report.size()) + "\n";
    write_all(report, head.data(), head.size());
    write_all(report, process.report.data(), process.report.size());
  }
  _exit(0);
}

bool take_turn(uint64_t workgroups, uint64_t &turn) {
  turn = shared->next.fetch_add(1);
  return turn < workgroups && turn <= shared->last;
}

void end_at_turn(uint64_t turn) {
  uint64_t last = shared->last;
  while (turn < last && !shared->last.compare_exchange_weak(last, turn)) {
  }
}
