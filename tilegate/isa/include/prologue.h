// What hipcc would bring in before the first line of a kernel: the wavefront size and clang's own device functions.
#pragma once
#define __AMDGCN_WAVEFRONT_SIZE 64  // every chip that is compiled for here; clang 20 and later no longer define it
#include <__clang_hip_runtime_wrapper.h>
