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
    storage_.fill_random(17);
    view_ = storage_.view();
    view_.rows = rows;
    view_.terms = 2;
    std::mt19937 random(4);
    const int groups = in / kGroup;
    for (int group = rows * groups; group < 2 * rows * groups; ++group) {
      if (random() % 3 != 0) drop(group);
    }
  }

  [[nodiscard]] const QuantizedRows& view() const { return view_; }
  [[nodiscard]] double value(int row, int k) const {
    return storage_.value(row, k) + storage_.value(view_.rows + row, k);
  }
  // Copies row `row` and its second term to `both`, rows 0 and 1.
  void copy_alone(int row, const QuantizedRows& both) const {
    copy_row(storage_.view(), row, both, 0);
    copy_row(storage_.view(), view_.rows + row, both, 1);
  }

 private:
  void drop(int group) {
    std::fill_n(view_.codes + static_cast<ptrdiff_t>(group) * kGroup, kGroup, int8_t{0});
    view_.scales[group] = 0;
    view_.sums[group] = {};
  }
  static void copy_row(const QuantizedRows& from, int row, const QuantizedRows& to, int to_row) {
    const int groups = from.in / kGroup;
    std::copy_n(from.codes + static_cast<ptrdiff_t>(row) * from.in, from.in,
                to.codes + static_cast<ptrdiff_t>(to_row) * from.in);
    std::copy_n(from.scales + row * groups, groups, to.scales + to_row * groups);
    std::copy_n(from.sums + row * groups, groups, to.sums + to_row * groups);
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
    for (int rows : {1, 2, 3, 4, 7, 13}) {
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
        x.copy_alone(row, both.view());
        QuantizedRows one = both.view();
        one.rows = 1;
        one.terms = 2;
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
