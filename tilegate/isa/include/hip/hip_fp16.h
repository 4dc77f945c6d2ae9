// Half precision: `_Float16` is the type that generated kernels compute with; `half2` carries two of them.
#pragma once
#include <hip/hip_runtime.h>

struct alignas(4) half2 {
  _Float16 x, y;
};
using __half2 = half2;
