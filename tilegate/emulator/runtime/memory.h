// Every access of a kernel to LDS and global memory: where it may go, what it may see, and with whom it conflicts.
#pragma once
#include <string>

#include "machine.h"

// Before the first workgroup: shadow memory of traced runs.
void open_memory();
// Whether the last access that was out of bounds was to this address: it is about to fault.
bool found_out_of_bounds(const void *address);
// Before each workgroup: LDS holds NaNs and counts as never written.
void prepare_memory();
// A store that looked like a race may have written what was there. Called before another lane runs.
void check_overwrites(Lane &lane);
inline void settle_overwrites(Lane &lane) {
  if (machine.launch.traced && !lane.overwrites.empty()) check_overwrites(lane);
}
void note_barrier(Site site);
// Barriers that no conflict needed, and those that one did: {"executed": [site…], "needed": [site…]}.
std::string barriers_json();
