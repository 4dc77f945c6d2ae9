// Matrix instructions of a wave: each lane brings its part of the operands, the product is computed once, and each lane
// takes its part of the result.
#pragma once
#include "machine.h"

void bring_operands(const Lane &lane, const TgMatrix &shape, const void *a, const void *b, const void *c);
void multiply(const Wave &wave, const TgMatrix &shape);
void take_result(const Lane &lane, const TgMatrix &shape, void *d);
