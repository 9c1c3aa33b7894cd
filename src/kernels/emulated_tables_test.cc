#include "kernels/emulated_tables.h"

#include <gtest/gtest.h>

#include "kernels/isa_table_body.h"
#include "kernels/simd_emulated.h"

namespace quire {

constinit const KernelTable kEmulated8Table = table_of<EmulatedPairWords>("emulated8");
constinit const KernelTable kEmulated16Table =
    table_with_tiles<EmulatedQuadWords, EmulatedTiles>("emulated16");

std::vector<const KernelTable*> all_tested_kernels() {
  const auto real = available_kernels();
  std::vector<const KernelTable*> tables(real.begin(), real.end());
  tables.push_back(&kEmulated8Table);
  tables.push_back(&kEmulated16Table);
  return tables;
}

namespace {

using W = EmulatedPairWords;

TEST(EmulatedWords, StopWhereSixteenBitsOverflow) {
  const auto codes = W::set1_i32(0x1f1f1f1f);
  const auto activations = W::set1_i32(0x7f7f7f7f);
  auto sum = W::dot_start(codes, activations);
  for (int i = 1; i < W::dot_steps(31); ++i) sum = W::dot(sum, codes, activations);
  EXPECT_EQ(W::dot_sum(sum).lane[0], 4 * W::dot_steps(31) * 31 * 127);
  EXPECT_DEATH(W::dot(sum, codes, activations), "INT16_MAX");
}

}  // namespace
}  // namespace quire
