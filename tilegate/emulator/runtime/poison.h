// Which bits of memory and registers are initialised: the answers to the calls of clang's memory sanitizer, in a build of
// the kernel of its own. Values of nothing written travel through copies, arithmetic, shuffles and matrix instructions;
// they are a finding where a branch, an address, a vote or a result of the kernel depends on them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "machine.h"

// Memory for the shadows of stacks, buffers and the kernel's library.
void open_shadows();
// Before each workgroup: nothing has written its LDS.
void poison_lds();
// After the last: results that hold what nothing has written.
void look_at_results();

// Of an exchange: what a lane brings, and what it goes on with.
void bring_shadow(Lane &lane, Site site);
void take_shadow(const Lane &lane);
// Of `to` becomes that of `from` (null: initialised).
void copy_shadow(void *to, const void *from, size_t bytes);
// The value that the runtime returns next is that of an address.
void return_shadow_of(const void *address, int bytes);
// Memory receives the argument of number `argument` of the call from `site`.
void store_shadow_argument(void *address, int bytes, int argument, Site site);
