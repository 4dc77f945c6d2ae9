#include "fiber.h"

#if defined(__x86_64__)
void prepare_fiber(Fiber &fiber, char *stack, size_t bytes, void (*entry)()) {
  // `entry` finds the stack as after a call: 8 bytes below a multiple of 16.
  auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
  auto *word = reinterpret_cast<uintptr_t *>(top);
  *--word = 0;  // where `entry` would return to
  *--word = reinterpret_cast<uintptr_t>(entry);
  fiber.stack_pointer = word;
}
#elif defined(__aarch64__)
void prepare_fiber(Fiber &fiber, char *stack, size_t bytes, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
  auto *word = reinterpret_cast<uintptr_t *>(top) - 4;
  word[0] = 0;  // frame pointer
  word[1] = reinterpret_cast<uintptr_t>(entry);
  word[2] = 0;  // x19
  fiber.stack_pointer = word;
}
#else
void prepare_fiber(Fiber &fiber, char *stack, size_t bytes, void (*entry)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
}
#endif
