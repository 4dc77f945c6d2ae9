// Limits on this process before any of the kernel's code runs, and reports of what hits them.
#pragma once
#include <cstdint>

// Wall and CPU time, address space; no core file, no file written.
void limit_process(double seconds, uint64_t memory_bytes);
// Faults of the kernel and the end of its time become findings.
void watch_signals();
