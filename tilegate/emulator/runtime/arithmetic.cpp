// Arithmetic of integers that the language leaves undefined, as clang's undefined-behaviour sanitizer reports it: an int that
// wraps, a shift past the width, a number that an 8- or 16-bit integer cannot hold.
#include "findings.h"

namespace {
enum Sort : int64_t { Wraps, ShiftsTooFar, ConvertsTooMuch };

void report(Sort sort, Site site) {
  const Lane *lane = machine.running;
  if (lane == nullptr) return;
  Finding finding{Fault::Overflow};
  finding.site = site;
  finding.thread = lane->thread;
  finding.workgroup = machine.workgroup_number;
  finding.offset = sort;
  found(finding);
}

// What the compiler says of a type; of an integer, `information` is twice the logarithm of its width, plus 1 if signed.
struct Type {
  uint16_t kind, information;
};
struct Conversion {
  const char *file;
  uint32_t line, column;
  const Type *from, *to;
};
}  // namespace

extern "C" {
void __ubsan_handle_add_overflow(void *, uint64_t, uint64_t) { report(Wraps, TG_SITE()); }
void __ubsan_handle_sub_overflow(void *, uint64_t, uint64_t) { report(Wraps, TG_SITE()); }
void __ubsan_handle_mul_overflow(void *, uint64_t, uint64_t) { report(Wraps, TG_SITE()); }
void __ubsan_handle_divrem_overflow(void *, uint64_t, uint64_t) { report(Wraps, TG_SITE()); }
void __ubsan_handle_negate_overflow(void *, uint64_t) { report(Wraps, TG_SITE()); }
void __ubsan_handle_shift_out_of_bounds(void *, uint64_t, uint64_t) { report(ShiftsTooFar, TG_SITE()); }
void __ubsan_handle_float_cast_overflow(void *data, uint64_t) {
  // The chip converts to 32 bits and saturates; of a smaller type it keeps the low bits of that.
  if (static_cast<const Conversion *>(data)->to->information >> 1 < 5) report(ConvertsTooMuch, TG_SITE());
}
}
