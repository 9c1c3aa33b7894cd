// How sequences get their KV memory. More than one policy exists to measure what each idea is worth.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

// Names as on the command line (--kv-policy).
enum class KvPolicy : uint8_t {
  kContiguous,  // one range of blocks for the longest answer, taken at admission: as before paging
  kPaged,       // blocks on demand, nothing reused between requests (vLLM's first design)
  kRadix,       // blocks on demand under a prefix tree
};

[[nodiscard]] std::string_view kv_policy_name(KvPolicy policy);
[[nodiscard]] std::optional<KvPolicy> kv_policy_from_name(std::string_view name);

}  // namespace quire
