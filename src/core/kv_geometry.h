// What one KV block holds, as data: the same for the pool, the store, the scheduler and the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// How K and V rows are stored. Names as on the command line (--kv-type).
enum class KvType : uint8_t { kF32, kF16, kBF16, kFp8, kInt8, kInt4 };

[[nodiscard]] std::string_view kv_type_name(KvType type);
[[nodiscard]] std::optional<KvType> kv_type_from_name(std::string_view name);
// All names, for messages: "f32, f16, …".
[[nodiscard]] std::string kv_type_names();

#ifdef QUIRE_PARANOID
inline constexpr int kDefaultBlockTokens = 2;
#else
inline constexpr int kDefaultBlockTokens = 32;
#endif

// Most layer groups that a model may have.
inline constexpr int kLayerGroupsMax = 4;

// The layers whose K and V live in the same blocks: all of them see the same span of the past.
struct LayerGroup {
  std::vector<int> layers;  // model layer indices, ascending
  int kv_heads = 0;
  int key_dim = 0;    // per head
  int value_dim = 0;  // per head
  int window = 0;     // tokens that a query sees, its own included; 0 = all
};

// Invariant: every layer of the model is in exactly one group; groups.size() <= kLayerGroupsMax.
struct KvGeometry {
  int block_tokens = kDefaultBlockTokens;
  KvType type = KvType::kF16;
  std::vector<LayerGroup> groups;
};

}  // namespace quire
