// One sequence's blocks.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/kv_geometry.h"
#include "kv/block_pool.h"

namespace quire {

using BlockCounts = std::array<int, kLayerGroupsMax>;           // [group]
using BlockIds = std::array<BlockId, kLayerGroupsMax>;          // [group]
using SealedBlocks = std::array<SealedBlock, kLayerGroupsMax>;  // [group]

// What a table that shared an open block gave up to write on its own copy.
struct TailCopy {
  BlockIds to;                                  // [group]; leased
  std::array<KeptBlock, kLayerGroupsMax> from;  // [group]; kept until it is copied
};

// Where one sequence's K and V live, over all layer groups: sealed blocks, then the open ones at the tail.
//
// Owned by the sequence's scheduler; its thread only. Invariants: (1) tokens_used() positions are written,
// and every group has ids for at least that many; (2) block j of a group is sealed when it is full
// ((j + 1) * block_tokens <= tokens_used()), else open; (3) an id is kNoBlock only for sealed blocks that no
// further token can see; (4) a change concerns all groups or none; (5) only the first open block can be
// shared with other tables, and only while it holds written tokens and no reserved ones. Cost: O(blocks
// touched).
class BlockTable {
 public:
  // pools: [group], outliving the table. The geometry outlives it too.
  BlockTable(const KvGeometry& geometry, std::span<BlockPool* const> pools);
  BlockTable(BlockTable&&) noexcept = default;
  BlockTable& operator=(BlockTable&&) = delete;
  ~BlockTable();

  // A second table of the same tokens, with nothing reserved on either: sealed blocks are pinned once more,
  // the open one is shared until one of them writes.
  [[nodiscard]] BlockTable fork() const;
  // Whether the next token lies in a block that another table shares: unshare_tail() comes before reserve().
  [[nodiscard]] bool shares_tail() const;
  // Leases a block per group in place of the shared one; the caller copies its bytes before the next write.
  // The pools have a free block each.
  [[nodiscard]] TailCopy unshare_tail();
  // Undoes unshare_tail(), with nothing reserved since.
  void reshare_tail(int group, KeptBlock block);

  // Blocks to lease before `tokens` more can be written, the copy of a shared tail included.
  [[nodiscard]] BlockCounts blocks_wanted(int tokens) const;
  // How many of them the pools' free blocks do not cover; all zero: reserve() will succeed.
  [[nodiscard]] BlockCounts blocks_lacking(int tokens) const;
  // Leases what blocks_wanted() says, with no tail shared; false, and nothing changed, when a pool has too
  // few free blocks.
  [[nodiscard]] bool reserve(int tokens);
  // Leases all blocks that `tokens` positions take, on an empty table, as one range of consecutive ids per
  // group; false, and nothing changed, when a pool has no such range.
  [[nodiscard]] bool reserve_range(int tokens);
  // `tokens` reserved positions were written. Seals the blocks that became full; returns how many per group.
  int commit(int tokens);
  // Lets the sealed blocks go of which no token from position tokens_used() on sees any.
  void drop_left_window();
  // Gives back open blocks that hold no written token.
  void trim();
  // Seals the block that is written in part and takes it out of the table, which is to be released next; all
  // empty where there is none or another table shares it. Nothing is reserved.
  [[nodiscard]] SealedBlocks seal_tail();

  // Appends a full block that somebody else wrote, at a block border and with nothing reserved. A group's
  // entry may be empty where drop_left_window() would let it go.
  void adopt(SealedBlocks blocks);
  // Leases one block per group, of which the first `tokens` positions the caller copies from elsewhere, at a
  // block border and with nothing reserved; nullopt, and nothing changed, when a pool has no free block.
  [[nodiscard]] std::optional<BlockIds> adopt_partial(int tokens);
  // Replaces a sealed block by an equal one: the older of two wins.
  void replace(int group, int index, SealedBlock block);

  // Lets everything go, children before parents.
  void release();

  // The block table as the kernels read it; holds until the next change.
  [[nodiscard]] std::span<const BlockId> ids(int group) const;
  [[nodiscard]] int tokens_used() const { return tokens_used_; }
  [[nodiscard]] int blocks_used() const;  // over all groups
  [[nodiscard]] int blocks_used(int group) const;
  // Blocks of `group` that nobody else pins: what release() would free or let go idle.
  [[nodiscard]] int blocks_unshared(int group) const;
  [[nodiscard]] int sealed_count() const { return tokens_used_ / geometry_->block_tokens; }

  // CHECKs the invariants; O(blocks).
  void audit() const;

 private:
  struct Group {
    std::vector<BlockId> ids;
    std::vector<SealedBlock> sealed;  // [block]; empty where dropped
    std::vector<OpenBlock> open;      // of blocks sealed.size() …
    int first_held = 0;               // blocks before it are dropped
  };
  [[nodiscard]] int first_visible_block(int group) const;

  const KvGeometry* geometry_;
  std::vector<BlockPool*> pools_;
  std::vector<Group> groups_;
  int tokens_used_ = 0;
};

}  // namespace quire
