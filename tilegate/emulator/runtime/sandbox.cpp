#include "sandbox.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cmath>
#include <csignal>
#include <cstdlib>

#include "findings.h"
#include "memory.h"

namespace {
constexpr int kLooks = 16;

void limit(decltype(RLIMIT_CPU) what, uint64_t value) {
  const rlimit both{value, value};
  setrlimit(what, &both);
}

uint64_t program_counter(const void *context) {
  const auto *interrupted = static_cast<const ucontext_t *>(context);
#if defined(__x86_64__)
  return static_cast<uint64_t>(interrupted->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return interrupted->uc_mcontext.pc;
#else
  return 0;
#endif
}

// Where the kernel was: the interrupted instruction, or the call into the runtime or the C library that it was in.
Finding here(Fault kind, uint64_t counter) {
  Finding finding{kind};
  const Launch &launch = machine.launch;
  const Lane *lane = machine.running;
  if (lane == nullptr) return finding;
  finding.thread = lane->thread;
  finding.workgroup = machine.workgroup_number;
  const bool in_kernel = counter >= launch.code_begin && counter < launch.code_end;
  finding.site = in_kernel ? static_cast<Site>(counter + 1 - launch.code_begin) : lane->site;
  return finding;
}

void on_alarm(int number, siginfo_t *, void *context);

void on_fault(int number, siginfo_t *info, void *context) {
  if (number == SIGTRAP && info->si_code == TRAP_TRACE) return on_alarm(number, info, context);
  Finding finding = here(Fault::Signal, program_counter(context));
  if (number == SIGSEGV || number == SIGBUS) {
    if (found_out_of_bounds(info->si_addr)) end_run();
    locate(finding, info->si_addr);
    // A little beyond a memory of the kernel's is out of its bounds; anywhere else is a wild pointer.
    constexpr int64_t near = 1 << 20;
    bool close = finding.space == Space::Lds;
    if (finding.parameter >= 0)
      for (const Buffer &buffer : machine.launch.buffers)
        if (buffer.parameter == finding.parameter)
          close = finding.offset >= -near && finding.offset < static_cast<int64_t>(buffer.end - buffer.begin) + near;
    if (close) finding.kind = Fault::OutOfBounds;
  }
  // Of this build alone: checks of the sizes of variables end in one.
  if (number == SIGILL && machine.launch.shadowed) finding.kind = Fault::PrivateBounds;
  if (finding.kind == Fault::Signal) finding.offset = number;
  stop(finding);
}

// Has the processor raise SIGTRAP after the next instruction, or no longer; only x86 lets a process do that to itself.
void trace_one_step(void *context, bool on) {
#if defined(__x86_64__)
  constexpr greg_t trap_flag = 0x100;
  greg_t &flags = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL];
  flags = on ? flags | trap_flag : flags & ~trap_flag;
#endif
}

void on_alarm(int number, siginfo_t *, void *context) {
  const uint64_t counter = program_counter(context);
  const Launch &launch = machine.launch;
  machine.expired = true;  // the runtime may be in the middle of something; it looks when a lane next waits
  trace_one_step(context, false);
  if (counter < launch.code_begin || counter >= launch.code_end) return;
  // An instruction that the compiler made of two lines has neither: a few more looks, a little later, find another. In a short
  // loop every interrupt may meet the same one, so the instruction that is executed next is looked at, too.
  static Finding seen[kLooks];
  static int looks = 0;
  seen[looks++] = here(Fault::Expired, counter);
  if (looks < kLooks) {
    trace_one_step(context, number == SIGALRM);
    const itimerval soon{{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    return;
  }
  for (int look = 1; look < kLooks; ++look) found(seen[look]);
  stop(seen[0]);
}

void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(number, &action, nullptr);
}
}  // namespace

void limit_process(double seconds, uint64_t memory_bytes) {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_CPU, static_cast<uint64_t>(std::ceil(seconds)) + 2);
#if !__has_feature(address_sanitizer)  // which reserves terabytes
  limit(RLIMIT_AS, memory_bytes);
#endif
  const double whole = std::floor(seconds);
  const itimerval timer{{0, 250000}, {static_cast<time_t>(whole), static_cast<suseconds_t>((seconds - whole) * 1e6)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void watch_signals() {
  static char stack[64 << 10];
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  sigaltstack(&own, nullptr);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) handle(number, on_fault);
  handle(SIGALRM, on_alarm);
}
