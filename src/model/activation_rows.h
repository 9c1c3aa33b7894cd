// What a matrix product reads: rows as float32, and the same rows in int8.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"

namespace quire {

// How a product sees its input rows. Two int8 terms: the part of a row that the first term lost is quantised
// again, and the products of both are added: some 15 bits for a second row's arithmetic, but no second
// reading of the weights.
enum class ActivationForm : uint8_t { kFloat, kInt8, kInt8Twice };

// A view of `rows` rows in step buffers: one thread's own, or the step's. codes holds 2 * rows rows: row r is
// the first term of row r, row rows + r its second.
struct ActivationRows {
  FloatRows floats;
  QuantizedRows codes;
};

// Quantises row `row` of the floats as `form` asks. `scratch`: [in] floats of the calling thread's own.
void quantize_activation(const KernelTable& kernels, const ActivationRows& rows, int row, ActivationForm form,
                         float* scratch);

}  // namespace quire
