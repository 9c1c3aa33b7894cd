// AVX2 with FMA, F16C and BMI2. Compiled with those flags: nothing here may run before find_kernels().
#if defined(__x86_64__)

#include "kernels/isa_table_body.h"
#include "kernels/isa_tables.h"
#include "kernels/simd_avx2.h"

namespace quire {

constinit const KernelTable kAvx2Table = table_of<Avx2Words>("avx2");

}  // namespace quire

#endif
