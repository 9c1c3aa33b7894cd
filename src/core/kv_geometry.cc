#include "core/kv_geometry.h"

#include <array>
#include <utility>

namespace quire {
namespace {

constexpr std::array<std::pair<KvType, std::string_view>, 2> kNames = {{
    {KvType::kF32, "f32"},
    {KvType::kF16, "f16"},
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

}  // namespace quire
