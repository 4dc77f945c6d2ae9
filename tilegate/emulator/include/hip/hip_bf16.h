// The bfloat16 of tilegate/isa's headers, with what only the host needs.
#pragma once
#include_next <hip/hip_bf16.h>

TG_DEVICE hip_bfloat16 max(hip_bfloat16 a, hip_bfloat16 b) { return float(a) > float(b) ? a : b; }
TG_DEVICE hip_bfloat16 min(hip_bfloat16 a, hip_bfloat16 b) { return float(a) < float(b) ? a : b; }

struct alignas(4) __hip_bfloat162 {
  hip_bfloat16 x, y;
};
TG_PACKED_ADD(__hip_bfloat162, hip_bfloat16)
