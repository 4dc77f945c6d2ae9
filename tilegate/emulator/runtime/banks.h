// The model of LDS bank conflicts (docs/emulator.md).
#pragma once
#include "machine.h"

// Cycles of one LDS instruction of a wave. Adds to `ideal` what it takes without conflicts, and raises `worst` to the most
// words that one bank served at once.
uint32_t lds_cycles(const Access *const *lanes, uint64_t mask, uint32_t &ideal, uint32_t &worst);
