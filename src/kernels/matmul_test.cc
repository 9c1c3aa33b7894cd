// Products with int8 activations: every table, real or emulated, and every type against a double-precision
// oracle within a derived bound, and bit for bit against the scalar table.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/test_oracle.h"
#include "kernels/test_rows.h"

namespace quire {
namespace {

std::vector<TensorType> code_types() {
  std::vector<TensorType> types;
  for (const TensorTypeInfo& info : tensor_types()) {
    if (has_codes(info.type)) types.push_back(info.type);
  }
  return types;
}

struct Shape {
  int out;
  int blocks;  // of the type, per row
  int rows;
};

std::vector<float> multiply(const KernelTable& kernels, const PackedMatrix& w, const QuantizedRows& x) {
  TestScratch scratch(w.in);
  const auto rows = static_cast<size_t>(x.rows);
  const auto out = static_cast<size_t>(w.out);
  GuardedBuffer<float> y(rows * out);
  kernels.matmul(w, x, 0, w.panels(), {y.data(), out}, scratch.data());
  return {y.data(), y.data() + y.size()};
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got,
                      std::string_view name) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(got[i])) << name << " at " << i;
  }
}

void check_all(const TestMatrix& matrix, const TestRows& x) {
  const TestPanels panels(matrix);
  const auto expected = multiply(*find_kernels("scalar"), panels.view(), x.view());
  // At most 2 fused steps and 2 products of scales.
  expect_near_double(matrix, x.view().rows, [&](int r, int k) { return x.value(r, k); }, 4, expected);
  for (const KernelTable* kernels : all_tested_kernels()) {
    SCOPED_TRACE(fmt::format("{} {} {}x{} rows {}", kernels->name, tensor_type_info(matrix.type).name,
                             matrix.out, matrix.in, x.view().rows));
    expect_same_bits(expected, multiply(*kernels, panels.view(), x.view()), kernels->name);
  }
}

TEST(Matmul, AgreesWithDoubleOnRaggedShapes) {
  const Shape shapes[] = {{1, 1, 1},   {15, 2, 2},   {16, 3, 3}, {17, 1, 5},
                          {33, 18, 4}, {50, 17, 16}, {31, 5, 29}};
  for (TensorType type : code_types()) {
    for (const Shape& shape : shapes) {
      const int in = shape.blocks * tensor_type_info(type).block_elements;
      TestRows x(shape.rows, in);
      x.fill_random(static_cast<uint32_t>(shape.out));
      check_all(make_test_matrix(type, shape.out, in, 7), x);
      if (HasFatalFailure()) return;
    }
  }
}

// The largest sums that can occur: every code at an end of its range, every activation at ±127.
TEST(Matmul, NeverSaturates) {
  for (TensorType type : code_types()) {
    const int in = 2 * std::max(kGroup * kGroup, tensor_type_info(type).block_elements);
    for (Codes codes : {Codes::kZeros, Codes::kOnes, Codes::kRandom}) {
      for (int rows : {1, 2, 7}) {
        TestRows x(rows, in);
        x.fill([&](size_t i) {
          const size_t row = i / static_cast<size_t>(in);
          return row % 3 == 0 ? 127 : row % 3 == 1 ? -127 : i % 2 == 0 ? 127 : -127;
        });
        check_all(make_test_matrix(type, 16, in, 3, codes), x);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Matmul, RowsDoNotDependOnTheirNumber) {
  for (TensorType type : code_types()) {
    const int in = 3 * 256;
    const TestMatrix matrix = make_test_matrix(type, 16, in, 11);
    const TestPanels panels(matrix);
    constexpr int kRows = 103;  // three tiles of activations
    TestRows all(kRows, in);
    all.fill_random(5);
    for (const KernelTable* kernels : all_tested_kernels()) {
      const auto expected = multiply(*kernels, panels.view(), all.view());
      for (int rows : {1, 2, 3, 4, 5, 13, 15, 16, 17, 49, 52, 64}) {
        const int first = kRows - rows - rows % 3;
        const TestRows some(all.view(), first, rows);
        const auto got = multiply(*kernels, panels.view(), some.view());
        const auto begin = expected.begin() + static_cast<ptrdiff_t>(first) * matrix.out;
        SCOPED_TRACE(fmt::format("{} rows {}", tensor_type_info(type).name, rows));
        expect_same_bits({begin, begin + static_cast<ptrdiff_t>(got.size())}, got, kernels->name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// So many long rows that they are multiplied block by block.
TEST(Matmul, RowsDoNotDependOnTheirBlock) {
  const int in = 8192;
  const int rows = 41;
  for (TensorType type : {TensorType::kQ4_1, TensorType::kQ6_K}) {
    const TestMatrix matrix = make_test_matrix(type, 16, in, 19);
    const TestPanels panels(matrix);
    TestRows all(rows, in);
    all.fill_random(6);
    for (const KernelTable* kernels : all_tested_kernels()) {
      const auto expected = multiply(*kernels, panels.view(), all.view());
      for (int row : {0, 20, 21, 23, 24, 31, 32, 40}) {
        const auto got = multiply(*kernels, panels.view(), TestRows(all.view(), row, 1).view());
        const auto begin = expected.begin() + static_cast<ptrdiff_t>(row) * matrix.out;
        SCOPED_TRACE(fmt::format("{} row {}", tensor_type_info(type).name, row));
        expect_same_bits({begin, begin + matrix.out}, got, kernels->name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Shares of panels give the same bits and touch nothing else.
TEST(Matmul, PanelRangesAreIndependent) {
  for (TensorType type : code_types()) {
    const int in = 256;
    const TestMatrix matrix = make_test_matrix(type, 75, in, 13);
    const TestPanels panels(matrix);
    for (int rows : {1, 2, 6}) {
      TestRows x(rows, in);
      x.fill_random(9);
      for (const KernelTable* kernels : all_tested_kernels()) {
        const auto whole = multiply(*kernels, panels.view(), x.view());
        TestScratch scratch(in);
        const size_t stride = 80;
        std::vector<float> y(static_cast<size_t>(rows) * stride, -1.0f);
        const ProductRows to{y.data(), stride};
        kernels->matmul(panels.view(), x.view(), 1, 3, to, scratch.data());
        kernels->matmul(panels.view(), x.view(), 4, 5, to, scratch.data());
        kernels->matmul(panels.view(), x.view(), 2, 2, to, scratch.data());
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
          for (size_t o = 0; o < stride; ++o) {
            const bool is_done = (o >= 16 && o < 48) || (o >= 64 && o < 75);
            ASSERT_EQ(y[r * stride + o], is_done ? whole[r * 75 + o] : -1.0f)
                << kernels->name << " " << tensor_type_info(type).name << " row " << r << " output " << o;
          }
        }
      }
    }
  }
}

// A group that holds an infinity or a NaN reaches every output as NaN; other rows are untouched.
TEST(Matmul, NonFiniteActivationsBecomeNan) {
  const int in = 256;
  for (TensorType type : code_types()) {
    const TestMatrix matrix = make_test_matrix(type, 16, in, 21);
    const TestPanels panels(matrix);
    for (const KernelTable* kernels : all_tested_kernels()) {
      TestRows x(3, in);
      std::vector<float> values(static_cast<size_t>(in), 0.5f);
      kernels->quantize_row(values.data(), 0, x.view());
      kernels->quantize_row(values.data(), 2, x.view());
      values[100] = NAN;
      kernels->quantize_row(values.data(), 1, x.view());
      const auto y = multiply(*kernels, panels.view(), x.view());
      for (size_t o = 0; o < 16; ++o) {
        EXPECT_TRUE(std::isfinite(y[o]));
        EXPECT_TRUE(std::isnan(y[16 + o]));
        EXPECT_TRUE(std::isfinite(y[32 + o]));
      }
    }
  }
}

}  // namespace
}  // namespace quire
