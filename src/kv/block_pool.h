// Who owns which block of one layer group. Bookkeeping only: the bytes live in KvStore.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/ids.h"

namespace quire {

class BlockPool;

enum class BlockState : uint8_t {
  kFree,    // nobody's
  kOpen,    // one writer
  kPinned,  // full, immutable, somebody reads it
  kIdle,    // full, immutable, cached, nobody reads it now
};

// The writer of a block that is not full yet. Move-only; giving it up frees the block. After a fork several
// share a block that is written in part: then nobody writes it until all but one have let go (copy on write).
class OpenBlock {
 public:
  OpenBlock() = default;
  OpenBlock(OpenBlock&& other) noexcept;
  OpenBlock& operator=(OpenBlock&& other) noexcept;
  ~OpenBlock();

  [[nodiscard]] BlockId id() const { return id_; }
  [[nodiscard]] explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  OpenBlock(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

// Keeps the frame of an open block that its holder has given up until it has been copied from. Others may
// go on to write the rows behind those that are copied.
class KeptBlock {
 public:
  KeptBlock() = default;
  KeptBlock(KeptBlock&& other) noexcept;
  KeptBlock& operator=(KeptBlock&& other) noexcept;
  ~KeptBlock();

  [[nodiscard]] BlockId id() const { return id_; }
  [[nodiscard]] explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  KeptBlock(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

// A pin on a full, immutable block. Copies share it; the last one lets the block go idle (when somebody may
// serve it again: see BlockPool::set_cached) or free.
class SealedBlock {
 public:
  SealedBlock() = default;
  SealedBlock(const SealedBlock& other);
  SealedBlock(SealedBlock&& other) noexcept;
  SealedBlock& operator=(SealedBlock other) noexcept;
  ~SealedBlock();

  [[nodiscard]] BlockId id() const { return id_; }
  [[nodiscard]] explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  SealedBlock(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

// The frames of one layer group and their states: free, open, pinned, idle.
//
// Owned by the engine; the engine thread only. Invariants (audit() checks them): (1) free + open + pinned +
// idle = total; (2) a block is in exactly one state and on exactly the list of that state; (3) an open block
// has as many OpenBlocks, a pinned one as many SealedBlocks as its pin count, and only an open one has keeps,
// one per KeptBlock; (4) idle blocks are cached ones
// without pins, in order of their release. Every operation is O(1) but audit().
class BlockPool {
 public:
  explicit BlockPool(int block_count);
  ~BlockPool();  // CHECKs that nothing is open or pinned
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A free block as an open one; nullopt when none is free (the caller may evict idle ones).
  [[nodiscard]] std::optional<OpenBlock> lease();
  // `count` free blocks with consecutive ids as open ones, the first such range; empty when there is none.
  // O(total).
  [[nodiscard]] std::vector<OpenBlock> lease_range(int count);
  // One more holder of a block that is written in part.
  [[nodiscard]] OpenBlock share(const OpenBlock& block);
  // Gives a hold on an open block up, but keeps its frame; reopen() undoes that.
  [[nodiscard]] KeptBlock keep(OpenBlock block);
  [[nodiscard]] OpenBlock reopen(KeptBlock block);
  // open → pinned, with one pin. Nobody else holds or keeps the block.
  [[nodiscard]] SealedBlock seal(OpenBlock block);
  // pinned n → n + 1, or idle → pinned 1. The block is sealed.
  [[nodiscard]] SealedBlock pin(BlockId id);
  // Whether a sealed block is held by the prefix tree: without pins it then goes idle rather than free.
  // Clearing it on an idle block frees that block.
  void set_cached(BlockId id, bool cached);  // the one boolean: a state, not a mode
  // The idle block that was released longest ago; kNoBlock when there is none.
  [[nodiscard]] BlockId oldest_idle() const;

  [[nodiscard]] int total() const { return static_cast<int>(blocks_.size()); }
  [[nodiscard]] int free_count() const { return free_count_; }
  [[nodiscard]] int open_count() const { return open_count_; }
  [[nodiscard]] int pinned_count() const { return pinned_count_; }
  [[nodiscard]] int idle_count() const { return idle_count_; }
  [[nodiscard]] BlockState state(BlockId id) const { return block(id).state; }
  [[nodiscard]] bool is_cached(BlockId id) const { return block(id).cached; }
  // Holders: SealedBlocks of a pinned one, OpenBlocks of an open one.
  [[nodiscard]] int pin_count(BlockId id) const { return block(id).pins; }
  [[nodiscard]] int keep_count(BlockId id) const { return block(id).keeps; }

  // Free blocks in ranges shorter than `count`; O(total).
  [[nodiscard]] int free_in_ranges_below(int count) const;

  // CHECKs every invariant; O(total).
  void audit() const;

 private:
  friend class OpenBlock;
  friend class KeptBlock;
  friend class SealedBlock;
  struct Block {
    BlockState state = BlockState::kFree;
    bool cached = false;
    int pins = 0;
    int keeps = 0;
    int32_t previous = -1, next = -1;  // on the free or the idle list
  };
  [[nodiscard]] const Block& block(BlockId id) const;
  [[nodiscard]] Block& block(BlockId id) { return const_cast<Block&>(std::as_const(*this).block(id)); }
  OpenBlock open_free(BlockId id);
  [[nodiscard]] int free_run_at(int first) const;
  void push_free(BlockId id);
  void push_idle(BlockId id);
  void unlink_idle(BlockId id);
  void audit_free_list() const;
  void audit_idle_list() const;
  void drop_open(BlockId id);
  void drop_keep(BlockId id);
  void add_pin(BlockId id);
  void drop_pin(BlockId id);

  std::vector<Block> blocks_;
  int32_t free_head_ = -1, idle_head_ = -1, idle_tail_ = -1;
  int free_count_ = 0, open_count_ = 0, pinned_count_ = 0, idle_count_ = 0;
};

}  // namespace quire
