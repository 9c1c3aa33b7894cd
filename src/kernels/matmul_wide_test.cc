// Products with 14-bit activations: every table, real or emulated, and every type against a double-precision
// oracle within a derived bound, bit for bit against the scalar table, and every row as if it were alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/test_oracle.h"

namespace quire {
namespace {

// Rows of codes with memory of their own, which ends at an unmapped page.
class TestWideRows {
 public:
  TestWideRows(int rows, int in)
      : codes_(static_cast<size_t>(rows) * static_cast<size_t>(in)),
        scales_(codes_.size() / kGroup),
        sums_(codes_.size() / kGroup),
        view_{rows, in, codes_.data(), scales_.data(), sums_.data()} {}

  // Row `row` of other rows, alone.
  TestWideRows(const WideRows& from, int row) : TestWideRows(1, from.in) {
    const GroupPlaces places = from.places(row);
    for (size_t g = 0; g < scales_.size(); ++g) {
      const size_t at = places[static_cast<int>(g)];
      std::copy_n(from.codes + at * kGroup, kGroup, codes_.data() + g * kGroup);
      scales_[g] = from.scales[at];
      sums_[g] = from.sums[at];
    }
  }

  // Any codes: code_at(row * in + k).
  template <class Code>
  void fill(Code code_at) {
    const auto groups = static_cast<size_t>(view_.in / kGroup);
    for (size_t i = 0; i < scales_.size(); ++i) {
      const size_t at = view_.places(static_cast<int>(i / groups))[static_cast<int>(i % groups)];
      sums_[at] = {};
      for (size_t k = 0; k < kGroup; ++k) {
        const int code = code_at(i * kGroup + k);
        codes_[place(at * kGroup + k)] = static_cast<int16_t>(code);
        (k < kGroup / 2 ? sums_[at].low : sums_[at].high) += code;
      }
      scales_[at] = 1e-5f * static_cast<float>(1 + i % 7);
    }
  }
  void fill_random(uint32_t seed) {
    std::mt19937 random(seed);
    fill([&](size_t) { return static_cast<int>(random() % (2 * kWideCodeMax + 1)) - kWideCodeMax; });
  }

  [[nodiscard]] const WideRows& view() const { return view_; }
  [[nodiscard]] double value(int row, int k) const {
    const size_t at = view_.places(row)[k / kGroup];
    return static_cast<double>(view_.scales[at]) *
           view_.codes[place(at * kGroup + static_cast<size_t>(k % kGroup))];
  }

 private:
  static size_t place(size_t at) {
    constexpr size_t kOrder[] = {0, 2, 1, 3};
    return at / 4 * 4 + kOrder[at % 4];
  }

  GuardedBuffer<int16_t> codes_;
  GuardedBuffer<float> scales_;
  GuardedBuffer<WideSums> sums_;
  WideRows view_;
};

std::vector<float> multiply(const KernelTable& kernels, const PackedMatrix& w, const WideRows& x) {
  const auto out = static_cast<size_t>(w.out);
  GuardedBuffer<float> y(static_cast<size_t>(x.rows) * out);
  kernels.matmul_wide(w, x, 0, w.panels(), {y.data(), out});
  return {y.data(), y.data() + y.size()};
}

void expect_same_bits(std::span<const float> expected, std::span<const float> got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(got[i])) << "at " << i;
  }
}

void check_all(const TestMatrix& matrix, const TestWideRows& x) {
  const TestPanels panels(matrix);
  const auto out = static_cast<size_t>(matrix.out);
  const auto expected = multiply(*find_kernels("scalar"), panels.view(), x.view());
  // As for int8 activations, and the integers of a group may be rounded when they become floats.
  expect_near_double(matrix, x.view().rows, [&](int r, int k) { return x.value(r, k); }, 6, expected);
  for (const KernelTable* kernels : all_tested_kernels()) {
    SCOPED_TRACE(fmt::format("{} {} {}x{} rows {}", kernels->name, tensor_type_info(matrix.type).name,
                             matrix.out, matrix.in, x.view().rows));
    expect_same_bits(expected, multiply(*kernels, panels.view(), x.view()));
    for (int row = 0; row < x.view().rows; ++row) {
      SCOPED_TRACE(row);
      expect_same_bits(std::span(expected).subspan(static_cast<size_t>(row) * out, out),
                       multiply(*kernels, panels.view(), TestWideRows(x.view(), row).view()));
    }
  }
}

TEST(MatmulWide, AgreesWithDoubleOnRaggedShapes) {
  struct Shape {
    int out;
    int blocks;  // of the type, per row
    int rows;
  };
  const Shape shapes[] = {{1, 1, 1}, {15, 2, 2}, {17, 1, 5}, {33, 18, 4}, {31, 5, 29}};
  for (const TensorTypeInfo& info : tensor_types()) {
    if (!has_codes(info.type)) continue;
    for (const Shape& shape : shapes) {
      const int in = shape.blocks * info.block_elements;
      TestWideRows x(shape.rows, in);
      x.fill_random(static_cast<uint32_t>(shape.out));
      check_all(make_test_matrix(info.type, shape.out, in, 7), x);
      if (HasFatalFailure()) return;
    }
  }
}

// The largest sums that can occur: every code at an end of its range, every activation too.
TEST(MatmulWide, NeverOverflows) {
  for (const TensorTypeInfo& info : tensor_types()) {
    if (!has_codes(info.type)) continue;
    for (Codes codes : {Codes::kZeros, Codes::kOnes, Codes::kRandom}) {
      TestWideRows x(3, 1024);
      x.fill([&](size_t i) {
        const size_t row = i / 1024;
        return row == 0 || (row == 2 && i % 2 == 0) ? kWideCodeMax : -kWideCodeMax;
      });
      check_all(make_test_matrix(info.type, 16, 1024, 3, codes), x);
      if (HasFatalFailure()) return;
    }
  }
}

// Shares of panels give the same bits and touch nothing else; so many long rows that they go block by block.
TEST(MatmulWide, PanelRangesAndRowBlocksAreIndependent) {
  const int in = 4096;
  const int rows = 53;
  for (TensorType type : {TensorType::kQ8_0, TensorType::kQ6_K}) {
    const TestPanels panels(make_test_matrix(type, 75, in, 13));
    TestWideRows x(rows, in);
    x.fill_random(9);
    for (const KernelTable* kernels : all_tested_kernels()) {
      SCOPED_TRACE(kernels->name);
      const size_t stride = 80;
      std::vector<float> y(rows * stride, -1.0f);
      kernels->matmul_wide(panels.view(), x.view(), 1, 3, {y.data(), stride});
      kernels->matmul_wide(panels.view(), x.view(), 4, 5, {y.data(), stride});
      for (int row : {0, 31, 32, 47, 48, 52}) {
        const auto alone = multiply(*kernels, panels.view(), TestWideRows(x.view(), row).view());
        for (size_t o = 0; o < stride; ++o) {
          const bool is_done = (o >= 16 && o < 48) || (o >= 64 && o < 75);
          ASSERT_EQ(y[static_cast<size_t>(row) * stride + o], is_done ? alone[o] : -1.0f)
              << "row " << row << " output " << o;
        }
      }
    }
  }
}

TEST(MatmulWide, NonFiniteActivationsBecomeNan) {
  const int in = 256;
  for (const TensorTypeInfo& info : tensor_types()) {
    if (!has_codes(info.type)) continue;
    const TestPanels panels(make_test_matrix(info.type, 16, in, 21));
    for (const KernelTable* kernels : all_tested_kernels()) {
      TestWideRows x(3, in);
      std::vector<float> values(static_cast<size_t>(in), 0.5f);
      kernels->quantize_row_wide(values.data(), 0, x.view());
      kernels->quantize_row_wide(values.data(), 2, x.view());
      values[100] = -INFINITY;
      kernels->quantize_row_wide(values.data(), 1, x.view());
      const auto y = multiply(*kernels, panels.view(), x.view());
      for (size_t o = 0; o < 16; ++o) {
        EXPECT_TRUE(std::isfinite(y[o]));
        EXPECT_TRUE(std::isnan(y[16 + o]));
        EXPECT_TRUE(std::isfinite(y[32 + o]));
      }
    }
  }
}

TEST(QuantizeRowWide, IsTheDefinition) {
  const float extremes[] = {0.0f, -0.0f, 1e-45f, 9e-35f, 1.1e-34f, 3.4e38f, -3.4e38f};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const int in = 3 * kGroup;
  for (const KernelTable* kernels : all_tested_kernels()) {
    for (float extreme : extremes) {
      SCOPED_TRACE(fmt::format("{} {}", kernels->name, extreme));
      TestWideRows q(2, in);
      std::vector<float> x(static_cast<size_t>(in), 0.0f);
      for (size_t k = 0; k < kGroup; ++k) x[k] = normal(random);
      x[40] = extreme;
      kernels->quantize_row_wide(x.data(), 1, q.view());
      for (size_t g = 0; g < 3; ++g) {
        const size_t at = q.view().places(1)[static_cast<int>(g)];
        float most = 0;
        for (size_t k = 0; k < kGroup; ++k) most = std::max(most, std::abs(x[g * kGroup + k]));
        const bool is_zero = most < 1e-34f;
        EXPECT_EQ(q.view().scales[at], is_zero ? 0.0f : most / kWideCodeMax);
        int sums[2] = {};
        for (size_t k = 0; k < kGroup; ++k) {
          const double scale = q.view().scales[at];
          const int code =
              is_zero ? 0 : static_cast<int>(std::nearbyint(x[g * kGroup + k] * (kWideCodeMax / most)));
          ASSERT_EQ(q.value(1, static_cast<int>(g * kGroup + k)), scale * code) << g << " " << k;
          ASSERT_LE(std::abs(code), kWideCodeMax);
          sums[k / 16] += code;
        }
        EXPECT_EQ(q.view().sums[at].low, sums[0]);
        EXPECT_EQ(q.view().sums[at].high, sums[1]);
      }
    }
  }
}

}  // namespace
}  // namespace quire
