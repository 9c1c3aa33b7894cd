#include "model/activation_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/packed_matrix.h"

namespace quire {
namespace {

// Rows of activations with everything that a view of them needs.
class Rows {
 public:
  Rows(int rows, int in)
      : values_(static_cast<size_t>(rows) * in),
        codes_(2 * values_.size()),
        scales_(codes_.size() / kGroup),
        sums_(codes_.size() / kGroup),
        wide_codes_(values_.size()),
        wide_sums_(values_.size() / kGroup) {
    view.floats = {.rows = rows, .in = in, .stride = static_cast<size_t>(in), .values = values_.data()};
    view.codes = {
        .rows = rows, .in = in, .codes = codes_.data(), .scales = scales_.data(), .sums = sums_.data()};
    view.wide = {.rows = rows,
                 .in = in,
                 .codes = wide_codes_.data(),
                 .scales = scales_.data(),
                 .sums = wide_sums_.data()};
  }

  float& at(int row, int i) { return values_[static_cast<size_t>(row) * view.floats.in + i]; }
  // What code row `row` stands for.
  double code_value(int row, int i) const {
    const size_t at = view.codes.places(row)[i / kGroup];
    return static_cast<double>(scales_[at]) * codes_[at * kGroup + i % kGroup];
  }

  ActivationRows view;

 private:
  std::vector<float> values_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<GroupSums> sums_;
  std::vector<int16_t> wide_codes_;
  std::vector<WideSums> wide_sums_;
};

TEST(QuantizeActivation, ASecondTermKeepsWhatTheFirstLost) {
  constexpr int kIn = 12 * kGroup;
  constexpr int kOutlier = 5;  // its group
  Rows rows(3, kIn);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < kIn; ++i) {
      rows.at(row, i) = normal(random) * (i / kGroup == kOutlier ? 30.0f : 1.0f);
    }
    quantize_activation(*find_kernels("scalar"), rows.view, row, ActivationForm::kInt8Outliers);
  }
  for (int row = 0; row < 3; ++row) {
    double largest = 0;
    for (int i = kOutlier * kGroup; i < (kOutlier + 1) * kGroup; ++i) {
      largest = std::max<double>(largest, std::abs(rows.at(row, i)));
    }
    for (int i = kOutlier * kGroup; i < (kOutlier + 1) * kGroup; ++i) {
      double first = rows.code_value(row, i);
      EXPECT_NEAR(first, rows.at(row, i), largest / 127 * 0.5001);
      // Half a step of the second scale, which is at most half a step of the first over 127.
      EXPECT_NEAR(first + rows.code_value(3 + row, i), rows.at(row, i), largest / 127 / 254 * 0.51);
    }
  }
}

TEST(QuantizeActivation, WideCodesAreWithinHalfAStep) {
  constexpr int kIn = 3 * kGroup;
  Rows rows(2, kIn);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  constexpr int kOrder[] = {0, 2, 1, 3};
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < kIn; ++i) rows.at(row, i) = normal(random);
    quantize_activation(*find_kernels("scalar"), rows.view, row, ActivationForm::kWide);
    for (int i = 0; i < kIn; ++i) {
      const size_t at = rows.view.wide.places(row)[i / kGroup];
      const float scale = rows.view.wide.scales[at];
      const int code = rows.view.wide.codes[at * kGroup + i % kGroup / 4 * 4 + kOrder[i % 4]];
      EXPECT_NEAR(static_cast<double>(scale) * code, rows.at(row, i), scale * 0.501) << row << " " << i;
    }
  }
}

TEST(QuantizeActivation, OnlyOutlierGroupsGetASecondTerm) {
  constexpr int kIn = 8 * kGroup;
  Rows rows(2, kIn);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < kIn; ++i) {
    rows.at(0, i) = normal(random);
    rows.at(1, i) = normal(random) * (i == 3 * kGroup + 9 ? 50.0f : 1.0f);
  }
  for (int row = 0; row < 2; ++row) {
    quantize_activation(*find_kernels("scalar"), rows.view, row, ActivationForm::kInt8Outliers);
  }
  const QuantizedRows& codes = rows.view.codes;
  for (int group = 0; group < kIn / kGroup; ++group) {
    EXPECT_EQ(codes.scales[codes.places(2)[group]], 0.0f) << "a row without outliers, group " << group;
    EXPECT_EQ(codes.scales[codes.places(3)[group]] != 0.0f, group == 3) << group;
  }
}

TEST(QuantizeActivation, FloatRowsStayAsTheyAre) {
  Rows rows(1, 32);
  rows.at(0, 3) = 2.0f;
  quantize_activation(*find_kernels("scalar"), rows.view, 0, ActivationForm::kFloat);
  EXPECT_EQ(rows.view.codes.scales[0], 0.0f);
  EXPECT_EQ(rows.view.codes.codes[3], 0);
}

}  // namespace
}  // namespace quire
