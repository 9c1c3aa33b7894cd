// The probes do what they count. How fast is for nobody to assert.
#include "kernels/ceilings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"

namespace quire {
namespace {

TEST(Ceilings, EveryKernelTableHasProbes) {
  for (const KernelTable* kernels : available_kernels()) {
    const CeilingTable* ceilings = find_ceilings(kernels->name);
    ASSERT_NE(ceilings, nullptr) << kernels->name;
    EXPECT_NE(ceilings->int8_dot, nullptr) << kernels->name;
  }
  EXPECT_EQ(find_ceilings("abacus"), nullptr);
}

// Any number of lines that ends at an unmapped page: fewer than there are streams, and some over.
TEST(Ceilings, ReadsTouchEveryWordOnce) {
  std::mt19937 random(1);
  for (size_t lines : {1, 3, 7, 8, 9, 64, 67, 1031}) {
    const GuardedBuffer<uint32_t> words(lines * 16);
    uint32_t sum = 0;
    for (uint32_t& word : words.span()) sum += word = static_cast<uint32_t>(random());
    for (const CeilingTable* table : available_ceilings()) {
      if (table->read_memory) {
        EXPECT_EQ(table->read_memory(std::as_bytes(words.span())), sum) << table->name << " " << lines;
      }
      if (table->read_cache) {
        EXPECT_EQ(table->read_cache(std::as_bytes(words.span())), sum) << table->name << " " << lines;
      }
    }
  }
}

TEST(Ceilings, OperationsAreProportionalToTurns) {
  for (const CeilingTable* table : available_ceilings()) {
    for (OperationProbe probe :
         {table->float_fma, table->int8_dot, table->int8_dot_sum32, table->int16_dot}) {
      if (probe == nullptr) continue;
      EXPECT_EQ(probe(0), 0) << table->name;
      EXPECT_GE(probe(1), 64) << table->name;
      EXPECT_EQ(probe(7), 7 * probe(1)) << table->name;
    }
  }
}

}  // namespace
}  // namespace quire
