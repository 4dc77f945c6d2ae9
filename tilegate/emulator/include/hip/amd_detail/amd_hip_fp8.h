// The 8-bit floats of tilegate/isa's headers, converted in software: the host has neither chip's instructions.
#pragma once
#pragma push_macro("__gfx942__")
#pragma push_macro("__gfx950__")
#undef __gfx942__
#undef __gfx950__
#include_next <hip/amd_detail/amd_hip_fp8.h>
#pragma pop_macro("__gfx942__")
#pragma pop_macro("__gfx950__")
