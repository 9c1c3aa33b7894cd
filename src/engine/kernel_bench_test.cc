// What `quire bench kernels` measures and how its figures follow. No test looks at how fast anything was.
#include "engine/kernel_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/machine.h"
#include "engine/round_order.h"
#include "kernels/attention.h"

namespace quire {
namespace {

TEST(RoundOrder, IsAPermutationThatDependsOnSeedAndRound) {
  for (int count : {0, 1, 2, 7, 100}) {
    const std::vector<int> order = round_order(5, 3, count);
    std::vector<int> sorted = order;
    std::ranges::sort(sorted);
    for (int i = 0; i < count; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
    EXPECT_EQ(order, round_order(5, 3, count));
  }
  EXPECT_NE(round_order(5, 3, 100), round_order(5, 4, 100));
  EXPECT_NE(round_order(5, 3, 100), round_order(6, 3, 100));
}

// Each of the 4! orders in about a 24th of the rounds: within five standard deviations.
TEST(RoundOrder, AllOrdersAreEquallyLikely) {
  constexpr int kRounds = 24000;
  std::map<std::vector<int>, int> seen;
  for (int round = 0; round < kRounds; ++round) ++seen[round_order(1, round, 4)];
  EXPECT_EQ(seen.size(), 24u);
  const double expected = kRounds / 24.0;
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, expected, 5 * std::sqrt(expected));
}

TEST(Roofline, TheLowerRoofCounts) {
  // 8 GB at 4 GB/s take 2 s, 10 GOP at 20 GOP/s half a second.
  const Work work{8e9, 10e9};
  const Roof roof{4e9, 20e9};
  EXPECT_DOUBLE_EQ(share_of_roof(work, roof, 4).share, 0.5);
  EXPECT_EQ(share_of_roof(work, roof, 4).limit, Limit::kBytes);
  const Work more{8e9, 100e9};
  EXPECT_DOUBLE_EQ(share_of_roof(more, roof, 4).share, 1.25);
  EXPECT_EQ(share_of_roof(more, roof, 4).limit, Limit::kOperations);
}

TEST(Roofline, WhatIsNotMeasuredDoesNotLimit) {
  EXPECT_DOUBLE_EQ(share_of_roof({8e9, 10e9}, {4e9, 0}, 4).share, 0.5);
  EXPECT_DOUBLE_EQ(share_of_roof({8e9, 10e9}, {0, 20e9}, 1).share, 0.5);
  EXPECT_EQ(share_of_roof({8e9, 10e9}, {0, 20e9}, 1).limit, Limit::kOperations);
  EXPECT_EQ(share_of_roof({8e9, 10e9}, {}, 1).limit, Limit::kNone);
  EXPECT_EQ(share_of_roof({0, 10e9}, {4e9, 0}, 1).share, 0);
}

KernelBenchOptions small_options() {
  return {.isas = {describe_machine().isas.back()},
          .kernels = {bench_kernels().begin(), bench_kernels().end()},
          .types = {TensorType::kQ4_0, TensorType::kBF16},
          .kv_types = {KvType::kF16, KvType::kInt4},
          .rows = {1, 3},
          .threads = {2, 3},
          .ceiling_threads = {1, 2, 3},
          .in = 64,
          .depth = 300,
          .set_bytes = 1 << 20,
          .seed = 1};
}

TEST(KernelBench, MeasuresTheWholeSelectionOnceARound) {
  const KernelBenchOptions options = small_options();
  auto bench = KernelBench::make(options);
  ASSERT_TRUE(bench.has_value()) << bench.error().message;
  (*bench)->measure_round();
  (*bench)->measure_round();
  std::multiset<std::string> cells;
  for (const KernelFigure& kernel : (*bench)->kernels()) {
    cells.insert(std::string(bench_kernel_name(kernel.kernel)) + " " + kernel.type);
    ASSERT_EQ(kernel.seconds.size(), 2u);
    for (double seconds : kernel.seconds) EXPECT_GT(seconds, 0);
    EXPECT_GT(kernel.work.bytes, 0);
  }
  // BF16 weights have no codes.
  const size_t places = options.isas.size() * options.threads.size();
  for (const char* cell : {"matmul Q4_0", "matmul_wide Q4_0", "matmul_float Q4_0", "matmul_float BF16"})
    EXPECT_EQ(cells.count(cell), 2 * places) << cell;
  for (const char* cell : {"quantize ", "quantize_wide ", "rms_norm ", "attention_decode f16",
                           "attention_prefill int4", "attention_shared f16"})
    EXPECT_EQ(cells.count(cell), places) << cell;
  EXPECT_EQ(cells.count("matmul BF16"), 0u);
  EXPECT_EQ(cells.size(), (4 * 2 + 3 + 3 * 2) * places);
  for (const CeilingFigure& ceiling : (*bench)->ceilings()) {
    ASSERT_EQ(ceiling.rates.size(), 2u);
    EXPECT_GT(ceiling.rates[0], 0) << ceiling.isa << " " << ceiling_name(ceiling.kind);
  }
}

// What one head of a token takes as f16, both of 128 dimensions. Blocks shorter than a packed row of keys are
// padded, and what is read counts.
double f16_token_bytes() {
  const auto bytes = static_cast<double>(kv_head_bytes(KvType::kF16, kDefaultBlockTokens, 128, 128));
#ifndef QUIRE_PARANOID
  EXPECT_DOUBLE_EQ(bytes, kDefaultBlockTokens * (128 + 128) * 2);
#endif
  return bytes / kDefaultBlockTokens;
}

// Work of one call, by hand.
TEST(KernelBench, CountsBytesAndOperations) {
  KernelBenchOptions options = small_options();
  options.threads = options.ceiling_threads = {1};
  options.rows = {3};
  auto bench = KernelBench::make(options);
  ASSERT_TRUE(bench.has_value()) << bench.error().message;
  for (const KernelFigure& kernel : (*bench)->kernels()) {
    if (kernel.type == "Q4_0") {
      EXPECT_DOUBLE_EQ(kernel.work.bytes, kBenchOutputs * 64 / 32 * 18.0);
      EXPECT_DOUBLE_EQ(kernel.work.operations, 2.0 * kBenchOutputs * 64 * 3);
    } else if (kernel.kernel == BenchKernel::kRmsNorm) {
      EXPECT_DOUBLE_EQ(kernel.work.bytes, 64 * 8);
    } else if (kernel.kernel == BenchKernel::kAttentionDecode && kernel.type == "f16") {
      // 301 tokens that the row sees, 2 KV heads of 128; 12 query heads.
      EXPECT_DOUBLE_EQ(kernel.work.bytes, 301.0 * 2 * f16_token_bytes());
      EXPECT_DOUBLE_EQ(kernel.work.operations, 301.0 * 12 * (128 + 128) * 2);
    } else if (kernel.kernel == BenchKernel::kAttentionShared && kernel.type == "f16") {
      // 256 tokens that all read together, and one of its own for each.
      EXPECT_EQ(kernel.rows, kBenchSharingSequences);
      EXPECT_DOUBLE_EQ(kernel.work.bytes, (256.0 + 16) * 2 * f16_token_bytes());
      EXPECT_DOUBLE_EQ(kernel.work.operations, 16 * 257.0 * 12 * (128 + 128) * 2);
    } else if (kernel.kernel == BenchKernel::kAttentionPrefill && kernel.type == "f16") {
      double seen = 0;
      for (int row = 0; row < kBenchPrefillRows; ++row) seen += 256 + row + 1;
      EXPECT_DOUBLE_EQ(kernel.work.operations, seen * 12 * (128 + 128) * 2);
      EXPECT_DOUBLE_EQ(kernel.work.bytes, (256.0 + kBenchPrefillRows) * 2 * f16_token_bytes());
    }
  }
}

TEST(KernelBench, NothingSelectedIsAFault) {
  KernelBenchOptions options = small_options();
  options.kernels = {BenchKernel::kMatmul};
  options.types = {TensorType::kBF16};
  const auto bench = KernelBench::make(options);
  ASSERT_FALSE(bench.has_value());
  EXPECT_EQ(bench.error().code, ErrorCode::kInvalidArgument);
}

TEST(KernelBench, SaysWhenItsSetsAreMoreThanTheMemory) {
  KernelBenchOptions options = small_options();
  options.set_bytes = size_t{1} << 50;
  const auto bench = KernelBench::make(options);
  ASSERT_FALSE(bench.has_value());
  EXPECT_EQ(bench.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(bench.error().field, "set_bytes");
}

}  // namespace
}  // namespace quire
