// What a chip would have executed: instructions of whole waves, by the place in the kernel.
#pragma once
#include <string>

#include "machine.h"

// Turns the accesses that the lanes of a wave made since last time into instructions of the wave.
void account_wave(const Wave &wave);

void count_matrix(Site site);
void count_exchange(Site site);
void count_barrier(Site site);
void count_atomic(Site site);

// {"places": [...], "workgroups": n, "xcd": [[requested, unique] …]}
std::string counters_json(uint32_t workgroups);
