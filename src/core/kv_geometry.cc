#include "core/kv_geometry.h"

#include <array>
#include <utility>

namespace quire {
namespace {

constexpr std::array<std::pair<KvType, std::string_view>, 6> kNames = {{
    {KvType::kF32, "f32"},
    {KvType::kF16, "f16"},
    {KvType::kBF16, "bf16"},
    {KvType::kFp8, "fp8"},
    {KvType::kInt8, "int8"},
    {KvType::kInt4, "int4"},
}};

}  // namespace

std::string_view kv_type_name(KvType type) {
  for (auto [known, name] : kNames) {
    if (known == type) return name;
  }
  return "?";
}

std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (auto [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::string kv_type_names() {
  std::string names;
  for (auto [type, name] : kNames) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace quire
