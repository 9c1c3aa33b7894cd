// AVX-512 F, BW, DQ, VL and VNNI, and the same with AMX's tiles of int8 for products of many rows. Compiled
// with those flags: nothing here may run before find_kernels().
#if defined(__x86_64__)

#include "kernels/isa_table_body.h"
#include "kernels/isa_tables.h"
#include "kernels/simd_avx512.h"
#include "kernels/tiles_amx.h"

namespace quire {

constinit const KernelTable kAvx512Table = table_of<Avx512Words>("avx512");
constinit const KernelTable kAmxTable = table_with_tiles<Avx512Words, AmxTiles>("amx");

}  // namespace quire

#endif
