// The tables that the isa_*.cc files of this platform define.
#pragma once

#include "kernels/kernel_table.h"

namespace quire {

extern const KernelTable kScalarTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const KernelTable kAmxTable;
#endif

}  // namespace quire
