#include "model/activation_rows.h"

#include "kernels/packed_matrix.h"

namespace quire {

void quantize_activation(const KernelTable& kernels, const ActivationRows& rows, int row, ActivationForm form,
                         float* scratch) {
  if (form == ActivationForm::kFloat) return;
  const QuantizedRows& codes = rows.codes;
  const float* values = rows.floats.values + static_cast<size_t>(row) * rows.floats.stride;
  kernels.quantize_row(values, row, codes);
  if (form == ActivationForm::kInt8) return;
  const int8_t* first = codes.codes + static_cast<size_t>(row) * codes.in;
  const float* scales = codes.scales + static_cast<size_t>(row) * (codes.in / kGroup);
  for (int group = 0; group < codes.in / kGroup; ++group) {
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      scratch[i] = values[i] - scales[group] * static_cast<float>(first[i]);
    }
  }
  kernels.quantize_row(scratch, rows.floats.rows + row, codes);
}

}  // namespace quire
