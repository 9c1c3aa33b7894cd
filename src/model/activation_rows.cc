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
  const GroupPlaces places = codes.places(row);
  const auto error = [&](int group) {
    const double scale = codes.scales[places[group]];
    return scale * scale;
  };
  double row_error = 0;
  for (int group = 0; group < groups; ++group) row_error += error(group);
  for (int group = 0; group < groups; ++group) {
    const bool again = error(group) * groups > kOutlierError * row_error;
    const float scale = codes.scales[places[group]];
    const int8_t* first = codes.codes + kGroup * places[group];
    for (int i = 0; i < kGroup; ++i) {
      const int at = group * kGroup + i;
      scratch[at] = again ? values[at] - scale * static_cast<float>(first[i]) : 0.0f;
    }
  }
  kernels.quantize_row(scratch, codes.rows + row, codes);
}

}  // namespace quire
