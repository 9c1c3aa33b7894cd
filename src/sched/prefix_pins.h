// Prefixes that stay in the cache because somebody asked for it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/kv_geometry.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"

namespace quire {

using PinId = Id<struct PinTag, uint64_t>;

inline constexpr int64_t kPinTtlMsMax = int64_t{366} * 24 * 60 * 60 * 1000;

struct PinRequest {
  CacheScope scope;
  std::span<const TokenId> tokens;  // their whole blocks are pinned
  int64_t now_ns = 0;
  int64_t ttl_ms = 0;  // from now on
};

// Pins cached prefixes until they are unpinned or their time is over. Nothing expires by itself: whoever has
// the clock calls expire().
//
// Owned by the scheduler, after the tree; its thread only. Invariants: (1) the pins hold at most blocks_max
// distinct blocks of each group, each block once however many pins want it; (2) a pinned prefix can be hit
// at its end. Cost: O(blocks of the prefix) a call.
class PrefixPins {
 public:
  struct Parts {
    const KvGeometry* geometry = nullptr;
    std::span<BlockPool* const> pools;  // [group]
    RadixTree* tree = nullptr;
    int blocks_max = 0;
  };
  explicit PrefixPins(const Parts& parts) : parts_(parts) {}

  // Errors: kInvalidArgument ("prompt_token_ids" shorter than a block, "ttl_ms" out of its range), kNotFound
  // ("prompt_token_ids" not all cached: compute them first), kResourceExhausted ("pinned_blocks_max").
  [[nodiscard]] Result<PinId> pin(const PinRequest& request);
  // kNotFound ("pin_id") when there is none of that id, for instance because its time was over.
  [[nodiscard]] Result<> unpin(PinId id);
  void expire(int64_t now_ns);

  [[nodiscard]] int count() const { return static_cast<int>(pins_.size()); }
  // Blocks of `group` that nobody but pins holds.
  [[nodiscard]] int blocks_held_alone(int group) const;
  // [block] → how often this class pins it.
  using Holders = std::unordered_map<BlockId, int>;
  [[nodiscard]] const Holders& holders(int group) const { return holders_[static_cast<size_t>(group)]; }

 private:
  struct Pin {
    std::vector<SealedBlocks> blocks;  // [block of the prefix]; empty where no hit needs it
    PrefixNodeId tip = kNoPrefixNode;
    int64_t expires_ns = 0;
  };
  using Pins = std::map<PinId, Pin>;
  [[nodiscard]] std::vector<BlockIds> blocks_of(const PrefixMatch& match) const;
  [[nodiscard]] Result<> check_quota(std::span<const BlockIds> wanted) const;
  Pins::iterator let_go(Pins::iterator pin);

  const Parts parts_;
  Pins pins_;
  std::array<Holders, kLayerGroupsMax> holders_;  // [group]
  uint64_t ids_ = 0;
};

}  // namespace quire
