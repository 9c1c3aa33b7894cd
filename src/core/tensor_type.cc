#include "core/tensor_type.h"

#include <array>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::array<TensorTypeInfo, 15> kTypes = {{
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ2_K, "Q2_K", 256, 84},
    {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},
    {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
    {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kBF16, "BF16", 1, 2},
    {TensorType::kMXFP4, "MXFP4", 32, 17},
}};

}  // namespace

std::span<const TensorTypeInfo> tensor_types() {
  return kTypes;
}

const TensorTypeInfo* find_tensor_type(uint32_t number) {
  for (const TensorTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
  const TensorTypeInfo* info = find_tensor_type(static_cast<uint32_t>(type));
  CHECK(info != nullptr);
  return *info;
}

}  // namespace quire
