// The prefix tree over the KV cache: which sealed block holds the K and V of which tokens after which prefix
// (after RadixAttention, Zheng et al., "SGLang", 2023), split at block borders.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/kv_geometry.h"
#include "kv/block_pool.h"

namespace quire {

// Whose cache: everything but the tokens that K and V depend on or that must not be shared across (model,
// adapter, tenant salt, codec). Ids are interned by the owner of the tree: different scopes, different ids.
using CacheScope = Id<struct CacheScopeTag, uint64_t>;

// One block of tokens after one prefix. Ids of removed nodes are used again.
using PrefixNodeId = Id<struct PrefixNodeTag, int32_t>;
inline constexpr PrefixNodeId kNoPrefixNode{-1};  // as a parent: the root of its scope

// The longest prefix that the cache can serve.
struct PrefixMatch {
  std::vector<PrefixNodeId> path;  // one node per whole block, from the first token on
  // The node that continues the path with `partial_tokens` >= 1 further equal tokens; kNoPrefixNode and 0
  // when there is none. It holds blocks of every group.
  PrefixNodeId partial = kNoPrefixNode;
  int partial_tokens = 0;
};

// What the rest of a block is filled up with that will never be full: no token is equal to it.
inline constexpr TokenId kUnwrittenToken = -1;

// A block that a sequence has sealed.
struct SealedPrefix {
  CacheScope scope;
  PrefixNodeId parent = kNoPrefixNode;  // of the block before it; kNoPrefixNode when it is the first
  std::span<const TokenId> tokens;      // block_tokens many, the last of them perhaps kUnwrittenToken
  std::span<const BlockId> blocks;      // [group]; pinned, or kNoBlock in a sliding window's group
};

// Owned by the scheduler; its thread only. A node is one block of tokens with one block id per layer group;
// a sliding-window group may lack its block (a tombstone). The pools know the blocks as cached; the tree owns
// no pin. Siblings form a treap ordered by their tokens, so tokens decide and no hash is trusted.
//
// Duties of the caller: (A) who pins a node's blocks pins those of its ancestors that a hit there needs (all
// of a full-attention group, the window's of another), and releases children before parents.
// Invariants (audit() checks them): (1) a node has a block in every full-attention group; (2) a leaf
// that is not held has a block; (3) siblings differ in their tokens,
// which are block_tokens many; (4) block → node and node → block agree, and each such block is cached;
// (5) by (A), the longest-idle block of a full-attention group belongs to a leaf.
// A leaf that no hit can end at, for want of its window's blocks, and that nobody holds will never serve: it
// is removed as soon as that shows, before anything is evicted that may serve (below an inner tombstone it is
// looked for among kSearchedBelowMax nodes).
// Cost: a match walks one node per block, O(log siblings) each; insert O(log siblings); eviction O(1)
// expected, amortised over insertions where it removes useless ancestors, of which each costs a walk over
// the window's blocks.
class RadixTree {
 public:
  // pools: [group], outliving the tree.
  RadixTree(KvGeometry geometry, std::vector<BlockPool*> pools);
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // The longest prefix of `tokens` that can be served: all blocks of full-attention groups, and in a group
  // with a window w those that hold any of the last w - 1 tokens before the hit's end. Changes nothing.
  [[nodiscard]] PrefixMatch match(CacheScope scope, std::span<const TokenId> tokens) const;

  // The child of `parent` that holds exactly these block_tokens tokens; kNoPrefixNode when there is none.
  [[nodiscard]] PrefixNodeId find(CacheScope scope, PrefixNodeId parent,
                                  std::span<const TokenId> tokens) const;

  // Makes the newest use of the match's idle blocks now, children before parents.
  void touch(const PrefixMatch& match);

  // The node of these tokens after `parent`, made if need be. Where the node has a block already that one
  // stays (the older wins): compare block() with the own id, pin the winner and let the own one go.
  PrefixNodeId insert(const SealedPrefix& prefix);

  // A held node is not removed, though its blocks in window groups may be evicted: for the parent of blocks
  // to come. Holds are counted; kNoPrefixNode is ignored.
  void hold(PrefixNodeId node);
  void release(PrefixNodeId node);

  // Forgets all that the scope has cached. Idle blocks are free at once; those in use, and what their holders
  // still add, are when they are let go. The id is not used for new requests again.
  void drop_scope(CacheScope scope);

  // Frees the longest-idle block of `group` (and with a full-attention group its node, a leaf, with all the
  // blocks that it has). False when no block of the group is idle.
  bool evict_one(int group);

  // kNoBlock: a tombstone.
  [[nodiscard]] BlockId block(PrefixNodeId node, int group) const {
    return nodes_[static_cast<size_t>(node.value)].blocks[static_cast<size_t>(group)];
  }
  [[nodiscard]] PrefixNodeId parent(PrefixNodeId node) const;
  [[nodiscard]] int node_count() const { return node_count_; }

  // CHECKs every invariant; O(nodes + blocks).
  void audit() const;

 private:
  static constexpr int32_t kNone = -1;
  static constexpr size_t kSearchedBelowMax = 256;

  struct Node {
    int32_t parent = kNone;
    int32_t children = kNone;             // root of the treap of children; free list when unused
    int32_t left = kNone, right = kNone;  // in the treap of siblings
    int32_t up = kNone;                   // in the treap of siblings; kNone = its root
    int32_t holds = 0;
    enum class Kind : uint8_t { kUnused, kRoot, kBlock } kind = Kind::kUnused;
    bool dropped = false;  // of a scope that is forgotten
    CacheScope scope;      // of a root
    std::array<BlockId, kLayerGroupsMax> blocks{kNoBlock, kNoBlock, kNoBlock, kNoBlock};
  };
  struct Search {
    int32_t node = kNone;  // the equal one
    int32_t last = kNone;  // the last one visited: where an insertion attaches
    bool goes_left = false;
    int32_t best = kNone;  // the servable one with most equal leading tokens
    int best_tokens = 0;
  };

  [[nodiscard]] Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  [[nodiscard]] const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  [[nodiscard]] std::span<const TokenId> tokens_of(int32_t node) const;
  [[nodiscard]] int32_t start_of(CacheScope scope, PrefixNodeId parent) const;
  [[nodiscard]] Search search(int32_t parent, std::span<const TokenId> tokens) const;
  [[nodiscard]] bool has_all_blocks(const Node& node) const;
  [[nodiscard]] bool has_any_block(const Node& node) const;
  [[nodiscard]] bool is_useful_leaf(int32_t node) const;
  int32_t make_node();
  int32_t make_root(CacheScope scope);
  void set_block(int32_t node, int group, BlockId block);
  void clear_block(int32_t node, int group);
  void clear_blocks(int32_t node);
  void attach(int32_t node, const Search& place);
  void detach(int32_t node);
  void rotate_up(int32_t node);
  void replace_child(int32_t node, int32_t by);
  void remove_if_useless(int32_t node);
  void remove_useless_below(int32_t node, int depth);
  void audit_node(int32_t index) const;

  const KvGeometry geometry_;
  const std::vector<BlockPool*> pools_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;              // [node, block_tokens]
  std::vector<std::vector<int32_t>> owner_;  // [group][block] → node
  std::unordered_map<CacheScope, int32_t> roots_;
  int32_t unused_ = kNone;
  int node_count_ = 0;  // roots not counted
};

}  // namespace quire
