// The half precision of tilegate/isa's headers, with what only the host needs.
#pragma once
#include_next <hip/hip_fp16.h>

using __half = _Float16;
TG_PACKED_ADD(half2, _Float16)
