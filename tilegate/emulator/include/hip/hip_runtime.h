// The part of HIP that generated kernels use, for compiling them for the host. What is not here does not compile: a
// construct that the emulator does not know is an error that names it, never a number.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include <emulated/interface.h>

#define __HIP_DEVICE_COMPILE__ 1
#define __AMDGCN_WAVEFRONT_SIZE 64
#define __global__
#define __host__
#define __constant__
// Inlined, so that what a template does is charged to the line of the kernel that calls it. Convergent, for it may hold a
// barrier, and a barrier that the compiler copies into two branches is two barriers.
#define __device__ __attribute__((always_inline, convergent))
#define __shared__  // of `extern __shared__`, which the linker places; the loader turns the others into TG_STATIC_LDS
#define TG_STATIC_LDS static __attribute__((used, section("tg_static_lds")))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define TG_DEVICE static inline __attribute__((always_inline))
#define TG_COLLECTIVE TG_DEVICE __attribute__((convergent))

static constexpr int warpSize = 64;
typedef int hipError_t;
enum { hipSuccess };

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};
// Objects, not macros: a kernel may have a variable of that name, as those with a swizzled order of workgroups do. Each
// member is a property whose getter asks the runtime.
#define TG_INDEX(name, read)                                                                                           \
  struct tg_##name {                                                                                                   \
    __declspec(property(get = get_x)) unsigned int x;                                                                  \
    __declspec(property(get = get_y)) unsigned int y;                                                                  \
    __declspec(property(get = get_z)) unsigned int z;                                                                  \
    __forceinline__ unsigned int get_x() const { return read().x; }                                                    \
    __forceinline__ unsigned int get_y() const { return read().y; }                                                    \
    __forceinline__ unsigned int get_z() const { return read().z; }                                                    \
    __forceinline__ operator dim3() const { return {read().x, read().y, read().z}; }                                   \
  };                                                                                                                   \
  static constexpr tg_##name name{};
TG_INDEX(threadIdx, tg_thread_index)
TG_INDEX(blockIdx, tg_block_index)
TG_INDEX(blockDim, tg_block_size)
TG_INDEX(gridDim, tg_grid_size)
#undef TG_INDEX

// Hints of what is likely move code, and the order of the branches of a wave is the order of the code.
#define __builtin_expect(value, expected) (value)
#define __builtin_expect_with_probability(value, expected, probability) (value)
#define likely
#define unlikely

#include <emulated/vectors.h>
#include <emulated/numbers.h>
#include <emulated/lanes.h>
#include <emulated/crosslane.h>
#include <emulated/buffers.h>
#include <emulated/matrix.h>
#include <emulated/atomics.h>
