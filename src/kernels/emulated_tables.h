// Kernel tables over emulated words, for tests only.
#pragma once

#include <vector>

#include "kernels/kernel_table.h"

namespace quire {

extern const KernelTable kEmulated8Table;   // registers of 8 lanes with 16-bit dots, as AVX2
extern const KernelTable kEmulated16Table;  // registers of 16 lanes with 32-bit dots and tiles, as AMX

// What this processor can run and the emulated ones.
[[nodiscard]] std::vector<const KernelTable*> all_tested_kernels();

}  // namespace quire
