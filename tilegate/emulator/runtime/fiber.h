// One flow of control with a stack of its own, and the switch from one to another.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

struct Fiber {
#if defined(__x86_64__) || defined(__aarch64__)
  void *stack_pointer;  // everything else is on the stack
#else
  ucontext_t context;
#endif
};

// Prepares a fiber that runs `entry` when it is switched to; `entry` never returns.
void prepare_fiber(Fiber &fiber, char *stack, size_t bytes, void (*entry)());

// Continue `to` where it last stopped. Inlined, with every register but two declared as overwritten: the compiler saves
// what it needs, and the jump at the end is predicted by where the fibers usually stop, which a `ret` would not be.
#if defined(__x86_64__)
#if defined(__AVX512F__)
#define TG_WIDE_REGISTERS                                                                                              \
  , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", \
      "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define TG_WIDE_REGISTERS
#endif
inline __attribute__((always_inline)) void switch_fiber(Fiber &from, Fiber &to) {
  void **save = &from.stack_pointer, *load = to.stack_pointer;
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"  // the red zone of the interrupted function
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rcx\n\t"
      "pushq %%rcx\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rcx\n\t"
      "jmpq *%%rcx\n"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0", "xmm1", "xmm2",
        "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" TG_WIDE_REGISTERS);
}
#elif defined(__aarch64__)
inline __attribute__((always_inline)) void switch_fiber(Fiber &from, Fiber &to) {
  register void **save asm("x0") = &from.stack_pointer;
  register void *load asm("x1") = to.stack_pointer;
  asm volatile(
      "adr x2, 1f\n\t"
      "stp x29, x2, [sp, #-32]!\n\t"
      "str x19, [sp, #16]\n\t"
      "mov x2, sp\n\t"
      "str x2, [x0]\n\t"
      "mov sp, x1\n\t"
      "ldr x19, [sp, #16]\n\t"
      "ldp x29, x2, [sp], #32\n\t"
      "br x2\n"
      "1:"
      : "+r"(save), "+r"(load)
      :
      : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x20", "x21",
        "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
        "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
        "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#else
inline void switch_fiber(Fiber &from, Fiber &to) { swapcontext(&from.context, &to.context); }
#endif

#if defined(__x86_64__) || defined(__aarch64__)
inline const void *fiber_top(const Fiber &fiber) { return fiber.stack_pointer; }
#else
inline const void *fiber_top(const Fiber &fiber) { return fiber.context.uc_stack.ss_sp; }
#endif
