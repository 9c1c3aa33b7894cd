// Which of two tables multiplies many rows faster on this machine.
#pragma once

#include "kernels/kernel_table.h"

namespace quire {

// Measures both, in turns, for less than a millisecond: a product of 64 rows with Q4_K weights that lie in
// the cache. Whether tile registers pay depends on the processor and on what shares it, and cannot be read
// from its flags. Both tables give the same bits.
[[nodiscard]] const KernelTable& faster_table(const KernelTable& a, const KernelTable& b);

}  // namespace quire
