// AVX-512 F, BW, DQ, VL and VNNI. Compiled with those flags: nothing here may run before find_kernels().
#if defined(__x86_64__)

#include "kernels/isa_table_body.h"
#include "kernels/isa_tables.h"
#include "kernels/simd_avx512.h"

namespace quire {

constinit const KernelTable kAvx512Table = table_of<Avx512Words>("avx512");

}  // namespace quire

#endif
