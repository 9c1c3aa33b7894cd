#include "model/step_buffers.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire {
namespace {

ModelSpec two_layers() {
  ModelSpec spec{.vocab_size = 101, .width = 48};
  spec.layers.push_back({.heads = 3, .kv_heads = 1, .head_dim = 16, .value_dim = 16, .ffn_width = 172});
  spec.layers.push_back({.heads = 6, .kv_heads = 2, .head_dim = 16, .value_dim = 8, .ffn_width = 60});
  return spec;
}

TEST(StepShape, TakesTheWidestLayer) {
  StepShape shape = step_shape(two_layers());
  EXPECT_EQ(shape.query_width, 96);
  EXPECT_EQ(shape.key_width, 32);
  EXPECT_EQ(shape.value_width, 16);
  EXPECT_EQ(shape.attention_width, 48);
  EXPECT_EQ(shape.ffn_width, 172);
  EXPECT_EQ(shape.in_max(), 192);  // a multiple of 32
}

TEST(StepBuffers, AreAlignedAndApart) {
  StepShape shape = step_shape(two_layers());
  shape.rows_max = 5;
  shape.logits_max = 3;
  shape.threads = 2;
  shape.rope_half_dims = 8;
  auto buffers = StepBuffers::create(shape);
  ASSERT_TRUE(buffers.has_value());
  for (const void* array : std::initializer_list<const void*>{
           buffers->query, buffers->key, buffers->value, buffers->attention, buffers->gate, buffers->up,
           buffers->branch, buffers->logits, buffers->cosines, buffers->sines, buffers->rows().codes,
           buffers->rows().sums, buffers->thread(1).rows.scales, buffers->thread(1).kernel_scratch}) {
    ASSERT_NE(array, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array) % 64, 0u);
  }
  EXPECT_GE(buffers->key - buffers->query, 5 * 96);
  EXPECT_GE(buffers->up - buffers->gate, 5 * 172);
  // The halves of a layer share their memory; what lives through both does not.
  EXPECT_EQ(buffers->gate, buffers->query);
  EXPECT_GE(buffers->branch, buffers->up + 5 * 172);
  EXPECT_NE(buffers->thread(0).rows.hidden, buffers->thread(1).rows.hidden);
}

TEST(StepBuffers, RefuseShapesThatNoMemoryHolds) {
  StepShape shape = step_shape(two_layers());
  shape.rows_max = std::numeric_limits<int>::max();
  shape.logits_max = std::numeric_limits<int>::max();
  shape.vocab_size = std::numeric_limits<int>::max();
  shape.ffn_width = std::numeric_limits<int>::max() / 2;
  shape.threads = 1;
  auto buffers = StepBuffers::create(shape);
  ASSERT_FALSE(buffers.has_value());
  EXPECT_EQ(buffers.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace quire
