// The part of HIP that generated kernels use, for compiling them where ROCm is not installed.
//
// Written for static analysis: every function has HIP's meaning and maps to the instructions that HIP's maps to, so that
// registers, LDS and instruction counts are those of the kernel and not of a stand-in. There is no host side.
#pragma once
#include <cstdint>
#include <cstdio>

#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// One argument is the number of threads a workgroup may have; the second, waves per execution unit, is a hint.
#define TG_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define TG_BOUNDS_2(threads, waves) TG_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define TG_BOUNDS_OF(_1, _2, name, ...) name
#define __launch_bounds__(...) TG_BOUNDS_OF(__VA_ARGS__, TG_BOUNDS_2, TG_BOUNDS_1)(__VA_ARGS__)

#define TG_DEVICE static __device__ __forceinline__

static constexpr int warpSize = 64;

// ---------------------------------------------------------------------------------------------------- vector types
// The elements overlay one native vector, as in HIP: a copy is then one value to the optimiser and stays in registers.
#define TG_NATIVE(type, count) type __attribute__((ext_vector_type(count)))
#define TG_VECTORS(type, name)                                                                                         \
  struct name##1 {                                                                                                     \
    type x;                                                                                                            \
  };                                                                                                                   \
  struct name##2 {                                                                                                     \
    typedef TG_NATIVE(type, 2) native;                                                                                 \
    union {                                                                                                            \
      native data;                                                                                                     \
      struct {                                                                                                         \
        type x, y;                                                                                                     \
      };                                                                                                               \
    };                                                                                                                 \
    name##2() = default;                                                                                               \
    constexpr __host__ __device__ name##2(type x, type y) : x(x), y(y) {}                                              \
  };                                                                                                                   \
  struct name##3 {                                                                                                     \
    type x, y, z;                                                                                                      \
  };                                                                                                                   \
  struct name##4 {                                                                                                     \
    typedef TG_NATIVE(type, 4) native;                                                                                 \
    union {                                                                                                            \
      native data;                                                                                                     \
      struct {                                                                                                         \
        type x, y, z, w;                                                                                               \
      };                                                                                                               \
    };                                                                                                                 \
    name##4() = default;                                                                                               \
    constexpr __host__ __device__ name##4(type x, type y, type z, type w) : x(x), y(y), z(z), w(w) {}                  \
  };                                                                                                                   \
  TG_DEVICE name##1 make_##name##1(type x) { return {x}; }                                                             \
  TG_DEVICE name##2 make_##name##2(type x, type y) { return {x, y}; }                                                  \
  TG_DEVICE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                       \
  TG_DEVICE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

TG_VECTORS(signed char, char)
TG_VECTORS(unsigned char, uchar)
TG_VECTORS(short, short)
TG_VECTORS(unsigned short, ushort)
TG_VECTORS(int, int)
TG_VECTORS(unsigned int, uint)
TG_VECTORS(long, long)
TG_VECTORS(unsigned long, ulong)
TG_VECTORS(long long, longlong)
TG_VECTORS(unsigned long long, ulonglong)
TG_VECTORS(float, float)
TG_VECTORS(double, double)
#undef TG_VECTORS
#undef TG_NATIVE

struct dim3 {
  unsigned int x, y, z;
  constexpr __host__ __device__ dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// -------------------------------------------------------------------------------------------- indices of a work-item
// `threadIdx.x` reads a register: each member is a property whose getter is the builtin.
#define TG_INDEX(name, read_x, read_y, read_z)                                                                         \
  struct tg_##name {                                                                                                   \
    __declspec(property(get = get_x)) unsigned int x;                                                                  \
    __declspec(property(get = get_y)) unsigned int y;                                                                  \
    __declspec(property(get = get_z)) unsigned int z;                                                                  \
    __device__ __forceinline__ unsigned int get_x() const { return read_x; }                                           \
    __device__ __forceinline__ unsigned int get_y() const { return read_y; }                                           \
    __device__ __forceinline__ unsigned int get_z() const { return read_z; }                                           \
  };                                                                                                                   \
  static constexpr __device__ tg_##name name{};

TG_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
TG_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
TG_INDEX(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
         __builtin_amdgcn_workgroup_size_z())
TG_INDEX(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
         __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
         __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
#undef TG_INDEX

// ---------------------------------------------------------------------------------------------- barriers and fences
TG_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
TG_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
TG_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
TG_DEVICE void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

extern "C" __device__ int __ockl_wgred_add_i32(int);
extern "C" __device__ int __ockl_wgred_and_i32(int);
extern "C" __device__ int __ockl_wgred_or_i32(int);
TG_DEVICE int __syncthreads_count(int predicate) { return __ockl_wgred_add_i32(!!predicate); }
TG_DEVICE int __syncthreads_and(int predicate) { return __ockl_wgred_and_i32(!!predicate); }
TG_DEVICE int __syncthreads_or(int predicate) { return __ockl_wgred_or_i32(!!predicate); }

// -------------------------------------------------------------------------------------------------- bits and numbers
#define TG_BITS(name, to, from)                                                                                        \
  TG_DEVICE to name(from value) { return __builtin_bit_cast(to, value); }
TG_BITS(__float_as_int, int, float)
TG_BITS(__float_as_uint, unsigned int, float)
TG_BITS(__int_as_float, float, int)
TG_BITS(__uint_as_float, float, unsigned int)
TG_BITS(__double_as_longlong, long long, double)
TG_BITS(__longlong_as_double, double, long long)
#undef TG_BITS
TG_DEVICE double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, (static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32) | static_cast<uint32_t>(low));
}
TG_DEVICE int __popc(unsigned int value) { return __builtin_popcount(value); }
TG_DEVICE int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
TG_DEVICE int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(value)); }
TG_DEVICE int __clzll(long long value) { return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value)); }
TG_DEVICE int __ffs(int value) { return __builtin_ffs(value); }
TG_DEVICE int __ffsll(long long value) { return __builtin_ffsll(value); }
TG_DEVICE unsigned int __brev(unsigned int value) { return __builtin_bitreverse32(value); }

TG_DEVICE long long clock64() { return static_cast<long long>(__builtin_readcyclecounter()); }
TG_DEVICE long long wall_clock64() { return static_cast<long long>(__builtin_readsteadycounter()); }

// --------------------------------------------------------------------------------------------------- global atomics
// HIP's default: relaxed, one device. A float addition becomes a compare-and-swap loop where the chip's own instruction
// would round or flush differently; the compiler decides, as it does under hipcc.
#define TG_ATOMIC(name, operation)                                                                                     \
  template <typename T> TG_DEVICE T name(T *address, T value) {                                                        \
    return operation(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                                      \
  }
TG_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
TG_ATOMIC(atomicMax, __hip_atomic_fetch_max)
TG_ATOMIC(atomicMin, __hip_atomic_fetch_min)
TG_ATOMIC(atomicOr, __hip_atomic_fetch_or)
TG_ATOMIC(atomicAnd, __hip_atomic_fetch_and)
TG_ATOMIC(atomicXor, __hip_atomic_fetch_xor)
TG_ATOMIC(atomicExch, __hip_atomic_exchange)
#undef TG_ATOMIC
template <typename T> TG_DEVICE T atomicCAS(T *address, T expected, T desired) {
  __hip_atomic_compare_exchange_strong(address, &expected, desired, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}

extern "C" __device__ int printf(const char *format, ...);

#include <hip/amd_detail/amd_warp_functions.h>
