#include "model/activation_rows.h"

#include <cstddef>

#include "kernels/packed_matrix.h"

namespace quire {
namespace {

// A group's error is its scale squared, up to a factor; one that has this many times the mean error of its
// row is an outlier. A function of the row alone, so of no matter to the determinism duty.
constexpr double kOutlierError = 4;

}  // namespace

void quantize_activation(const KernelTable& kernels, const ActivationRows& rows, int row, ActivationForm form,
                         float* scratch) {
  if (form == ActivationForm::kFloat) return;
  const QuantizedRows& codes = rows.codes;
  const float* values = rows.floats.values + static_cast<size_t>(row) * rows.floats.stride;
  if (form == ActivationForm::kWide) return kernels.quantize_row_wide(values, row, rows.wide);
  kernels.quantize_row(values, row, codes);
  if (form == ActivationForm::kInt8) return;

  const int groups = codes.in / kGroup;
  const int8_t* first = codes.codes + static_cast<size_t>(row) * codes.in;
  const float* scales = codes.scales + static_cast<size_t>(row) * groups;
  double row_error = 0;
  for (int group = 0; group < groups; ++group)
    row_error += static_cast<double>(scales[group]) * scales[group];
  for (int group = 0; group < groups; ++group) {
    double error = static_cast<double>(scales[group]) * scales[group];
    bool again = error * groups > kOutlierError * row_error;
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      scratch[i] = again ? values[i] - scales[group] * static_cast<float>(first[i]) : 0.0f;
    }
  }
  kernels.quantize_row(scratch, codes.rows + row, codes);
}

}  // namespace quire
