// Matrix instructions of a wave: each lane brings its part of the operands, the product is computed once, and each lane
// takes its part of the result.
#pragma once
#include "machine.h"

// The product of what the lanes of a wave have brought.
void multiply(const Wave &wave, const TgMatrix &shape);
