// What a matrix product reads: rows as float32, and the same rows in integers.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace quire {

// How a product sees its input rows: the floats, or one of ActivationCodes.
enum class ActivationForm : uint8_t { kFloat, kInt8, kInt8Outliers, kWide };

// A view of `rows` rows in step buffers: one thread's own, or the step's. codes has room for second terms.
struct ActivationRows {
  FloatRows floats;
  QuantizedRows codes;
  WideRows wide;
};

// Quantises row `row` of the floats as `form` asks.
void quantize_activation(const KernelTable& kernels, const ActivationRows& rows, int row,
                         ActivationForm form);

}  // namespace quire
