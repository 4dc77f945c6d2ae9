// What a compiled kernel calls and the runtime provides, and the other way round. Included by both sides.
//
// A kernel is compiled for the host into a shared library; one work-item is one fiber of the runtime. Everything that a
// work-item cannot do alone (barriers, exchange between lanes, matrix instructions) is a function here. The address that
// such a function returns to tells the runtime which place of the kernel called it.
#pragma once
#include <cstddef>
#include <cstdint>

// Calls that all lanes of a wave make together must not be duplicated or moved under a lane's condition by the compiler.
#define TG_TOGETHER __attribute__((convergent, noduplicate, noinline))

struct TgIndex {
  unsigned int x, y, z;
};

// Element types of a matrix instruction's operands. Fnuz are the 8-bit formats of gfx942, Ocp those of gfx950.
enum class TgElement : uint8_t { Half, BFloat, Float, Fp8Fnuz, Bf8Fnuz, Fp8Ocp, Bf8Ocp, Int8 };

// A matrix instruction: D (rows x columns) = A (rows x depth) * B (depth x columns) + C, float32 or int32 results.
struct TgMatrix {
  uint8_t rows, columns, depth;
  TgElement a, b;
};

// Which values of which lanes an exchange reads.
//   ReadLane  a lane's register, whether it takes part or not, which only the chip knows
//   Dpp       of a lane that does not take part, nothing: bit 32 tells that there is a value
//   Push      `source_lane` is where the value goes; of several the last; 0 where none comes
enum class TgExchange : uint8_t { Shuffle, FirstLane, Ballot, WaveBarrier, ReadLane, Dpp, Push };

extern "C" {
// Constant for a work-item: the compiler may keep the answers.
TgIndex tg_thread_index() __attribute__((const));
TgIndex tg_block_index() __attribute__((const));
TgIndex tg_block_size() __attribute__((const));
TgIndex tg_grid_size() __attribute__((const));
unsigned int tg_lane() __attribute__((const));

TG_TOGETHER void tg_barrier();
// The instruction alone, which does not wait for what a wave has still to store in LDS.
TG_TOGETHER void tg_bare_barrier();
TG_TOGETHER int tg_barrier_count(int predicate);  // of how many work-items it is not 0
void tg_drain();  // this work-item waits for its own stores in LDS
TG_TOGETHER uint64_t tg_exchange(TgExchange kind, uint64_t value, int source_lane);
TG_TOGETHER void tg_matrix(const TgMatrix *shape, const void *a, const void *b, const void *c, void *d);
void tg_unknown_modifier();  // of a matrix instruction: ends the run
// Around it in a build that tells what is initialised: operands before, the result after.
void tg_bring_factors(const TgMatrix *shape, const void *a, const void *b);
void tg_take_factors(const TgMatrix *shape, const void *c, void *d);

// An atomic operation is a load and a store with no other work-item in between; `size` is 1, 2, 4 or 8 bytes.
uint64_t tg_atomic_load(const void *address, int size);
void tg_atomic_store(void *address, int size, uint64_t value);

// A copy of `size` bytes from global memory (zeros when `global` is null) into LDS that is not done before a wait for it.
void tg_copy_async(void *lds, const void *global, int size);
void tg_wait_async(int outstanding);  // until at most so many of this work-item's copies are not done

// Provided by the kernel's library.
void tg_kernel(void **arguments);
extern char tg_lds_pool[];
extern const size_t tg_lds_pool_bytes;
extern char tg_lds[];  // dynamic LDS, in the pool; what follows it up to the next page is not the kernel's
extern const size_t tg_lds_bytes;
extern char *const tg_static_lds_begin, *const tg_static_lds_end;
}
