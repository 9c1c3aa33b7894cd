// The reference: plain C++, on every machine.
#include "kernels/isa_table_body.h"
#include "kernels/isa_tables.h"
#include "kernels/simd_scalar.h"

namespace quire {

constinit const KernelTable kScalarTable = table_of<ScalarWords>("scalar");

}  // namespace quire
