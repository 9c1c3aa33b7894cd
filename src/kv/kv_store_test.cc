#include "kv/kv_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <set>

namespace quire {
namespace {

KvGeometry two_groups(KvType type) {
  return {.block_tokens = 32,
          .type = type,
          .groups = {{.layers = {0, 2, 5}, .kv_heads = 2, .key_dim = 64, .value_dim = 64, .window = 0},
                     {.layers = {1, 3, 4}, .kv_heads = 1, .key_dim = 96, .value_dim = 80, .window = 128}}};
}

std::unique_ptr<KvStore> make(const KvGeometry& geometry, std::vector<int> counts) {
  auto store = KvStore::create(geometry, std::move(counts));
  EXPECT_TRUE(store) << store.error().message;
  return std::move(*store);
}

TEST(KvStore, EverySliceIsInsideItsBlockAndItsOwn) {
  for (KvType type : {KvType::kF32, KvType::kF16}) {
    const KvGeometry geometry = two_groups(type);
    auto store = make(geometry, {3, 5});
    for (int g = 0; g < 2; ++g) {
      const LayerGroup& group = geometry.groups[static_cast<size_t>(g)];
      std::set<const std::byte*> starts;
      const size_t slice = kv_head_bytes(type, 32, group.key_dim, group.value_dim);
      const std::byte* base = store->layer(group.layers[0]).slice(BlockId{0}, 0);
      for (int block = 0; block < store->block_count(g); ++block) {
        for (int layer : group.layers) {
          EXPECT_EQ(store->group_of_layer(layer), g);
          for (int head = 0; head < group.kv_heads; ++head) {
            const std::byte* at = store->layer(layer).slice(BlockId{block}, head);
            EXPECT_EQ((at - base) % static_cast<ptrdiff_t>(slice), 0);
            EXPECT_EQ(static_cast<size_t>(at - base) / store->block_bytes(g), static_cast<size_t>(block));
            EXPECT_TRUE(starts.insert(at).second);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % 64, 0u);
          }
        }
      }
      EXPECT_EQ(starts.size() * slice, store->block_bytes(g) * static_cast<size_t>(store->block_count(g)));
    }
  }
}

TEST(KvStore, CopyAndPoisonTouchOneFrameOnly) {
  const KvGeometry geometry = two_groups(KvType::kF16);
  auto store = make(geometry, {2, 4});
  const size_t bytes = store->block_bytes(1);
  const auto frame = [&](int block) { return store->layer(1).slice(BlockId{block}, 0); };
  for (int block = 0; block < 4; ++block) std::memset(frame(block), block + 1, bytes);
  store->copy_block(1, BlockId{0}, BlockId{2});
  store->poison(1, BlockId{3});
  const int expected[] = {1, 2, 1, 0xFF};
  for (int block = 0; block < 4; ++block)
    for (size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(static_cast<int>(frame(block)[i]), expected[block]) << block << " " << i;
}

TEST(KvStore, PoisonIsNotANumber) {
  auto store = make(two_groups(KvType::kF32), {1, 1});
  store->poison(0, BlockId{0});
  float value = 0;
  std::memcpy(&value, store->layer(0).slice(BlockId{0}, 0), sizeof value);
  EXPECT_NE(value, value);
}

TEST(KvStore, BytesFollowFromTheGeometry) {
  const KvGeometry geometry = two_groups(KvType::kF16);
  auto store = make(geometry, {2, 2});
  EXPECT_EQ(kv_block_bytes(geometry, 0), store->block_bytes(0));
  EXPECT_EQ(kv_block_bytes(geometry, 1), store->block_bytes(1));
  // f16: layers * heads * (key + value) * 2 bytes, no padding at 32 tokens.
  EXPECT_EQ(kv_token_bytes(geometry), size_t{3 * 2 * (64 + 64) * 2 + 3 * 1 * (96 + 80) * 2});
  EXPECT_GE(store->reserved_bytes(), 2 * (store->block_bytes(0) + store->block_bytes(1)));
}

#ifndef QUIRE_PARANOID
TEST(KvStore, ReservesMoreThanMemoryAndTouchesNothing) {
  const KvGeometry geometry = two_groups(KvType::kF16);
  const int blocks = static_cast<int>((size_t{1} << 40) / kv_block_bytes(geometry, 0));
  auto store = KvStore::create(geometry, {blocks, 1});
  // Under a bounded address space (ulimit -v) a terabyte cannot be reserved, whatever the store does.
  if (!store) GTEST_SKIP() << "this machine bounds address space: " << store.error().message;
  *(*store)->layer(0).slice(BlockId{blocks - 1}, 0) = std::byte{1};
  EXPECT_GE((*store)->reserved_bytes(), (size_t{1} << 40) - (size_t{1} << 30));
}
#endif

TEST(KvStore, BadGeometriesAreErrorsThatNameField) {
  const auto field = [](const KvGeometry& geometry, std::vector<int> counts) {
    auto store = KvStore::create(geometry, std::move(counts));
    return store ? std::string("none") : store.error().field;
  };
  KvGeometry geometry = two_groups(KvType::kF16);
  EXPECT_EQ(field(geometry, {1, 0}), "block_count");
  EXPECT_EQ(field(geometry, {1, -5}), "block_count");
  geometry.groups[0].kv_heads = 0;
  EXPECT_EQ(field(geometry, {1, 1}), "kv_heads");
  geometry = two_groups(KvType::kF16);
  geometry.groups[1].key_dim = 1 << 20;
  EXPECT_EQ(field(geometry, {1, 1}), "key_dim");
  geometry = two_groups(KvType::kF16);
  geometry.groups[1].layers = {1, 2};
  EXPECT_EQ(field(geometry, {1, 1}), "layer");
  geometry = two_groups(KvType::kF16);
  geometry.block_tokens = 0;
  EXPECT_EQ(field(geometry, {1, 1}), "block_tokens");
  geometry = two_groups(KvType::kF32);
  geometry.groups[0].kv_heads = 1 << 16;
  geometry.groups[0].key_dim = 1 << 16;
  geometry.groups[0].value_dim = 1 << 16;
  EXPECT_EQ(field(geometry, {std::numeric_limits<int>::max(), 1}), "kv_bytes");
}

}  // namespace
}  // namespace quire
