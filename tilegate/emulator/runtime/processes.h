// The processes that run the kernel, and the one that watches them: it runs nothing of the kernel, keeps their reports
// apart, and ends them when their time has passed or nobody waits for the result any more.
#pragma once
#include <cstdint>

// Runs `work` in `processes` processes, each with a descriptor for its report, and does not return. Writes for each of them
// its exit status (of a signal: negative), the length of its report, and the report.
[[noreturn]] void watch_processes(int processes, double seconds, int report, void (*work)(int report));

// For `work`: the next turn that no other process has taken: 0 for the first workgroup. False if none is left, or one before it
// ended the run.
bool take_turn(uint64_t workgroups, uint64_t &turn);
// The run ends with this turn: those after it need not be run.
void end_at_turn(uint64_t turn);
