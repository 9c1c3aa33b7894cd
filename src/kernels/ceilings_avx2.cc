// AVX2 with FMA. Compiled with those flags, like isa_avx2.cc: nothing here may run before
// available_ceilings().
#if defined(__x86_64__)

#include "kernels/ceiling_body.h"
#include "kernels/simd_avx2.h"

namespace quire {
namespace {

struct Avx2Probe : Avx2Words {
  KERNEL_INLINE void hide(F32& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
  KERNEL_INLINE void hide(I32& a) { asm volatile("" : "+x"(a.lo), "+x"(a.hi)); }
};

}  // namespace

constinit const CeilingTable kAvx2Ceilings = ceilings_of<Avx2Probe>("avx2");

}  // namespace quire

#endif
