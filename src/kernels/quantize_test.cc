#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/test_rows.h"

namespace quire {
namespace {

// The definition in kernel_table.h, written out.
void expect_quantized(std::span<const float> x, const QuantizedRows& q, int row) {
  for (size_t g = 0; g < x.size() / kGroup; ++g) {
    const size_t index = q.places(row)[static_cast<int>(g)];
    float most = 0;
    bool is_finite = true;
    for (size_t k = 0; k < kGroup; ++k) {
      is_finite = is_finite && std::isfinite(x[g * kGroup + k]);
      most = std::max(most, std::abs(x[g * kGroup + k]));
    }
    if (!is_finite) {
      EXPECT_FALSE(std::isfinite(q.scales[index]));
      for (size_t k = 0; k < kGroup; ++k) EXPECT_EQ(q.codes[index * kGroup + k], 0);
      continue;
    }
    const bool is_zero = most < 1e-35f;
    EXPECT_EQ(q.scales[index], is_zero ? 0.0f : most / 127.0f);
    int sums[2] = {};
    for (size_t k = 0; k < kGroup; ++k) {
      const int code = is_zero ? 0 : static_cast<int>(std::nearbyint(x[g * kGroup + k] * (127.0f / most)));
      ASSERT_EQ(q.codes[index * kGroup + k], code) << "group " << g << " value " << x[g * kGroup + k];
      ASSERT_LE(std::abs(code), 127);
      sums[k / 16] += code;
    }
    EXPECT_EQ(q.sums[index].low, sums[0]);
    EXPECT_EQ(q.sums[index].high, sums[1]);
    EXPECT_EQ(q.sums[index].scaled, q.scales[index] * static_cast<float>(sums[0] + sums[1]));
  }
}

TEST(QuantizeRow, IsTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int in : {32, 64, 576, 1536}) {
    GuardedBuffer<float> x(static_cast<size_t>(in));
    for (const KernelTable* kernels : all_tested_kernels()) {
      SCOPED_TRACE(kernels->name);
      TestRows q(3, in);
      for (int row : {2, 0}) {
        for (float& value : x.span()) value = normal(random);
        kernels->quantize_row(x.data(), row, q.view());
        expect_quantized(x.span(), q.view(), row);
      }
    }
  }
}

TEST(QuantizeRow, TiesGoToEven) {
  std::vector<float> x(32);
  for (size_t k = 0; k < 32; ++k) x[k] = static_cast<float>(k) - 15.5f;
  x[31] = 127.0f;
  for (const KernelTable* kernels : all_tested_kernels()) {
    TestRows q(1, 32);
    kernels->quantize_row(x.data(), 0, q.view());
    EXPECT_EQ(q.view().codes[0], -16) << kernels->name;  // -15.5
    EXPECT_EQ(q.view().codes[1], -14);                   // -14.5
    EXPECT_EQ(q.view().codes[17], 2);                    // 1.5
    EXPECT_EQ(q.view().codes[18], 2);                    // 2.5
  }
}

TEST(QuantizeRow, SurvivesExtremes) {
  const float extremes[] = {0.0f,    -0.0f,    1e-45f,   1e-38f,    9e-36f, 1.1e-35f,
                            3.4e38f, -3.4e38f, INFINITY, -INFINITY, NAN,    -NAN};
  for (const KernelTable* kernels : all_tested_kernels()) {
    for (float extreme : extremes) {
      for (size_t at : {size_t{0}, size_t{15}, size_t{16}, size_t{31}}) {
        SCOPED_TRACE(fmt::format("{} {} at {}", kernels->name, extreme, at));
        std::vector<float> x(64, 0.0f);
        x[at] = extreme;
        x[40] = 1.0f;
        TestRows q(1, 64);
        kernels->quantize_row(x.data(), 0, q.view());
        expect_quantized(x, q.view(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace quire
