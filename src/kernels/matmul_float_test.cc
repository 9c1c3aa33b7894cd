// Products with float32 activations and the look-up of rows. Both are defined exactly (dequantize_row, then
// one chain of fused multiply-adds), so the oracle is that definition, bit for bit, and a double-precision
// sum beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/test_matrix.h"
#include "kernels/test_rows.h"

namespace quire {
namespace {

struct Shape {
  int out;
  int in;
  int rows;
};

int in_of(TensorType type, int in) {
  const int elements = tensor_type_info(type).block_elements;
  return elements == 1 ? in : round_up(in, elements);
}

void check_product(const KernelTable& kernels, const TestMatrix& matrix, int rows) {
  const TestPanels panels(matrix);
  const auto in = static_cast<size_t>(matrix.in);
  const auto out = static_cast<size_t>(matrix.out);
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  GuardedBuffer<float> x(static_cast<size_t>(rows) * in);
  for (float& value : x.span()) value = normal(random);
  GuardedBuffer<float> y(static_cast<size_t>(rows) * out);
  TestScratch scratch(matrix.in);
  kernels.matmul_float(panels.view(), {rows, matrix.in, in, x.data()}, 0, panels.view().panels(),
                       {y.data(), out}, scratch.data());
  for (size_t o = 0; o < out; ++o) {
    const auto w = matrix.row_values(static_cast<int>(o));
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      float chain = 0;
      double sum = 0;
      double magnitude = 0;
      for (size_t k = 0; k < in; ++k) {
        chain = std::fma(w[k], x[r * in + k], chain);
        sum += static_cast<double>(w[k]) * x[r * in + k];
        magnitude += std::abs(static_cast<double>(w[k]) * x[r * in + k]);
      }
      ASSERT_EQ(y[r * out + o], chain) << "row " << r << " output " << o;
      ASSERT_NEAR(chain, sum, static_cast<double>(in) * 0x1p-24 * magnitude + 1e-30);
    }
  }
}

TEST(MatmulFloat, IsTheDefinedChain) {
  const Shape shapes[] = {{1, 1, 1},     {15, 33, 2},  {16, 256, 3},  {17, 257, 5},
                          {33, 600, 13}, {50, 31, 17}, {17, 2111, 41}};
  for (const TensorTypeInfo& info : tensor_types()) {
    for (const Shape& shape : shapes) {
      const TestMatrix matrix = make_test_matrix(info.type, shape.out, in_of(info.type, shape.in), 23);
      for (const KernelTable* kernels : all_tested_kernels()) {
        SCOPED_TRACE(
            fmt::format("{} {} {}x{} rows {}", kernels->name, info.name, matrix.out, matrix.in, shape.rows));
        check_product(*kernels, matrix, shape.rows);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatmulFloat, PanelRangesAreIndependent) {
  const TestMatrix matrix = make_test_matrix(TensorType::kQ4_1, 40, 96, 29);
  const TestPanels panels(matrix);
  std::vector<float> x(96 * 5, 0.25f);
  TestScratch scratch(96);
  for (const KernelTable* kernels : all_tested_kernels()) {
    std::vector<float> y(40 * 5, -1.0f);
    kernels->matmul_float(panels.view(), {5, 96, 96, x.data()}, 1, 2, {y.data(), 40}, scratch.data());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] == -1.0f, i % 40 < 16 || i % 40 >= 32) << i;
  }
}

TEST(UnpackRow, HasTheBitsOfDequantizeRow) {
  for (const TensorTypeInfo& info : tensor_types()) {
    for (Codes codes : {Codes::kRandom, Codes::kZeros, Codes::kOnes}) {
      const TestMatrix matrix = make_test_matrix(info.type, 21, in_of(info.type, 515), 31, codes);
      const TestPanels panels(matrix);
      for (const KernelTable* kernels : all_tested_kernels()) {
        for (int row : {0, 1, 15, 16, 20}) {
          GuardedBuffer<float> got(static_cast<size_t>(matrix.in));
          kernels->unpack_row(panels.view(), row, got.data());
          const auto expected = matrix.row_values(row);
          for (size_t k = 0; k < expected.size(); ++k) {
            if (std::isnan(expected[k])) {
              ASSERT_TRUE(std::isnan(got[k]));
            } else {
              ASSERT_EQ(got[k], expected[k])
                  << kernels->name << " " << info.name << " row " << row << " k " << k;
            }
          }
        }
      }
    }
  }
}

// All 256 exponents of MXFP4, subnormal and infinite products included.
TEST(UnpackRow, Mxfp4Exponents) {
  TestMatrix matrix = make_test_matrix(TensorType::kMXFP4, 16, 32 * 16, 37);
  for (int i = 0; i < 256; ++i) matrix.bytes[static_cast<size_t>(i) * 17] = static_cast<uint8_t>(i);
  const TestPanels panels(matrix);
  for (const KernelTable* kernels : all_tested_kernels()) {
    for (int row = 0; row < 16; ++row) {
      std::vector<float> got(static_cast<size_t>(matrix.in));
      kernels->unpack_row(panels.view(), row, got.data());
      EXPECT_EQ(got, matrix.row_values(row)) << kernels->name << " row " << row;
    }
  }
}

}  // namespace
}  // namespace quire
