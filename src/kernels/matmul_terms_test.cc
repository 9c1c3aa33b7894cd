// Products whose rows have second terms: against a double-precision oracle, bit for bit on every table, and
// the same for a row alone as among neighbours that have theirs elsewhere.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/test_matrix.h"
#include "kernels/test_rows.h"

namespace quire {
namespace {

constexpr int kOut = 37;

// `rows` rows with two terms; about one group in three has a second.
class TwoTermRows {
 public:
  TwoTermRows(int rows, int in) : storage_(2 * rows, in), view_(storage_.view()) {
    view_.rows = rows;
    view_.terms = 2;
    TestRows any(2 * rows, in);
    any.fill_random(17);
    std::mt19937 random(4);
    for (int row = 0; row < 2 * rows; ++row) {
      TestRows::copy_row(any.view(), row, view_, row);
      for (int group = 0; row >= rows && group < in / kGroup; ++group) {
        if (random() % 3 != 0) drop(view_.places(row)[group]);
      }
    }
  }

  [[nodiscard]] const QuantizedRows& view() const { return view_; }
  [[nodiscard]] double value(int row, int k) const {
    double value = 0;
    for (int term : {row, view_.rows + row}) {
      const size_t at = view_.places(term)[k / kGroup];
      value +=
          static_cast<double>(view_.scales[at]) * view_.codes[at * kGroup + static_cast<size_t>(k % kGroup)];
    }
    return value;
  }
  // Copies row `row` and its second term to `one`, which has a row of two terms.
  void copy_alone(int row, const QuantizedRows& one) const {
    TestRows::copy_row(view_, row, one, 0);
    TestRows::copy_row(view_, view_.rows + row, one, 1);
  }

 private:
  void drop(size_t place) {
    std::fill_n(view_.codes + place * kGroup, kGroup, int8_t{0});
    view_.scales[place] = 0;
    view_.sums[place] = {};
  }

  TestRows storage_;
  QuantizedRows view_;
};

std::vector<float> multiply(const KernelTable& kernels, const PackedMatrix& w, const QuantizedRows& x) {
  TestScratch scratch(w.in);
  std::vector<float> y(static_cast<size_t>(x.rows) * static_cast<size_t>(w.out));
  kernels.matmul(w, x, 0, w.panels(), {y.data(), static_cast<size_t>(w.out)}, scratch.data());
  return y;
}

void expect_near_double(const TestMatrix& matrix, const TwoTermRows& x, const std::vector<float>& y) {
  const TestMatrix plain = without_codes(matrix);
  const double steps = 2.0 * (matrix.in / kGroup);
  for (int o = 0; o < matrix.out; ++o) {
    const auto w = matrix.row_values(o);
    const auto base = plain.row_values(o);
    for (int r = 0; r < x.view().rows; ++r) {
      double sum = 0;
      double magnitude = 0;
      for (int k = 0; k < matrix.in; ++k) {
        const auto i = static_cast<size_t>(k);
        sum += w[i] * x.value(r, k);
        magnitude += 2 * (std::abs(w[i] - base[i]) + std::abs(base[i])) * 0.007 * 127;
      }
      const double bound = (4 * steps + 2) * 0x1p-24 * magnitude + 1e-30;
      ASSERT_NEAR(y[static_cast<size_t>(r) * static_cast<size_t>(matrix.out) + static_cast<size_t>(o)], sum,
                  bound)
          << tensor_type_info(matrix.type).name << " output " << o << " row " << r;
    }
  }
}

TEST(MatmulTerms, AgreeWithTheOracleOnEveryTableAndForEveryRowAlone) {
  for (const TensorTypeInfo& info : tensor_types()) {
    if (!has_codes(info.type)) continue;
    const int in = info.block_elements == 256 ? 512 : 96;
    const TestMatrix matrix = make_test_matrix(info.type, kOut, in, 3);
    const TestPanels panels(matrix);
    for (int rows : {1, 2, 3, 4, 7, 13, 52}) {
      const TwoTermRows x(rows, in);
      const auto expected = multiply(*find_kernels("scalar"), panels.view(), x.view());
      expect_near_double(matrix, x, expected);
      for (const KernelTable* kernels : all_tested_kernels()) {
        const auto got = multiply(*kernels, panels.view(), x.view());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
              << kernels->name << " " << info.name << " rows " << rows << " at " << i;
        }
      }
      for (int row = 0; row < rows; ++row) {
        const TestRows both(2, in);
        QuantizedRows one = both.view();
        one.rows = 1;
        one.terms = 2;
        x.copy_alone(row, one);
        const auto got = multiply(*find_kernels("scalar"), panels.view(), one);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                    std::bit_cast<uint32_t>(expected[static_cast<size_t>(row) * kOut + i]))
              << info.name << " row " << row << " of " << rows;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
