// What a product should be, in double precision, for kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/test_matrix.h"

namespace quire {

// y [row, output] is matrix times x; value_at(row, k) of x. For each output the exact sum, and how far
// float32 may be from it: `roundings` a group of 32, each within 2^-24 of what is summed so far, which is at
// most the sum of magnitudes (of the codes' part and of the zero points' and minimums' part).
template <class Value>
void expect_near_double(const TestMatrix& matrix, int rows, Value value_at, double roundings,
                        const std::vector<float>& y) {
  const TestMatrix plain = without_codes(matrix);
  const double groups = matrix.in / kGroup;
  for (int o = 0; o < matrix.out; ++o) {
    const auto w = matrix.row_values(o);
    const auto base = plain.row_values(o);
    for (int r = 0; r < rows; ++r) {
      double sum = 0;
      double magnitude = 0;
      for (int k = 0; k < matrix.in; ++k) {
        const auto i = static_cast<size_t>(k);
        sum += w[i] * value_at(r, k);
        magnitude += (std::abs(w[i] - base[i]) + std::abs(base[i])) * std::abs(value_at(r, k));
      }
      const double bound = (roundings * groups + 2) * 0x1p-24 * magnitude + 1e-30;
      const float got = y[static_cast<size_t>(r) * static_cast<size_t>(matrix.out) + static_cast<size_t>(o)];
      ASSERT_NEAR(got, sum, bound) << tensor_type_info(matrix.type).name << " output " << o << " row " << r;
    }
  }
}

}  // namespace quire
