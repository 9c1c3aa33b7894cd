// AVX-512 with VNNI. Compiled with those flags, like isa_avx512.cc: nothing here may run before
// available_ceilings().
#if defined(__x86_64__)

#include "kernels/ceiling_body.h"
#include "kernels/simd_avx512.h"

namespace quire {
namespace {

struct Avx512Probe : Avx512Words {
  KERNEL_INLINE void hide(F32& a) { asm volatile("" : "+v"(a)); }
  KERNEL_INLINE void hide(I32& a) { asm volatile("" : "+v"(a)); }
};

}  // namespace

constinit const CeilingTable kAvx512Ceilings = ceilings_of<Avx512Probe>("avx512");

}  // namespace quire

#endif
