#include "sched/kv_policy.h"

#include <array>

namespace quire {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"contiguous", "paged", "radix"};  // [KvPolicy]

}  // namespace

std::string_view kv_policy_name(KvPolicy policy) {
  return kNames[static_cast<size_t>(policy)];
}

std::optional<KvPolicy> kv_policy_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<KvPolicy>(i);
  return std::nullopt;
}

}  // namespace quire
