#include "model/activation_rows.h"

#include <cstddef>

#include "kernels/packed_matrix.h"

namespace quire {
namespace {

// A group's error is its scale squared, up to a factor; one that has this many times the mean error of its
// row is an outlier. A function of the row alone, so of no matter to the determinism duty.
constexpr double kOutlierError = 4;

// What the codes of a group lost, as a group of a row of second terms.
void quantize_rest(const KernelTable& kernels, const float* values, const QuantizedRows& q, size_t first,
                   size_t second) {
  float rest[kGroup];
  const int8_t* codes = q.codes + kGroup * first;
  for (int i = 0; i < kGroup; ++i) rest[i] = values[i] - q.scales[first] * static_cast<float>(codes[i]);
  kernels.quantize_row(rest, 0,
                       {.rows = 1,
                        .in = kGroup,
                        .codes = q.codes + kGroup * second,
                        .scales = q.scales + second,
                        .sums = q.sums + second});
}

}  // namespace

void quantize_activation(const KernelTable& kernels, const ActivationRows& rows, int row,
                         ActivationForm form) {
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
    const size_t second = places[group] + codes.term_groups();
    if (error(group) * groups > kOutlierError * row_error) {
      quantize_rest(kernels, values + group * kGroup, codes, places[group], second);
    } else {
      codes.scales[second] = 0;
    }
  }
}

}  // namespace quire
