#include "core/model_spec.h"

#include <gtest/gtest.h>

#include "core/tensor_type.h"

namespace quire {
namespace {

TEST(ModelSpec, LayersOfOneKindShareAGroup) {
  ModelSpec spec;
  for (int layer = 0; layer < 12; ++layer) {
    spec.layers.push_back(
        {.heads = 4, .kv_heads = 1, .head_dim = 256, .value_dim = 256, .window = layer % 6 == 5 ? 0 : 512});
  }
  KvGeometry geometry = spec.kv_geometry(KvType::kF16);
  ASSERT_EQ(geometry.groups.size(), 2u);
  EXPECT_EQ(geometry.groups[0].window, 512);
  EXPECT_EQ(geometry.groups[0].layers, (std::vector<int>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  EXPECT_EQ(geometry.groups[1].window, 0);
  EXPECT_EQ(geometry.groups[1].layers, (std::vector<int>{5, 11}));
}

TEST(KvTypeNames, AreReadBack) {
  for (KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kFp8, KvType::kInt8, KvType::kInt4}) {
    EXPECT_EQ(kv_type_from_name(kv_type_name(type)), type);
    EXPECT_NE(kv_type_names().find(kv_type_name(type)), std::string::npos);
  }
  EXPECT_FALSE(kv_type_from_name("f17").has_value());
}

TEST(TensorTypes, AreFoundByNumber) {
  for (const TensorTypeInfo& info : tensor_types()) {
    const TensorTypeInfo* found = find_tensor_type(static_cast<uint32_t>(info.type));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, info.name);
  }
  EXPECT_EQ(find_tensor_type(4), nullptr);
}

}  // namespace
}  // namespace quire
