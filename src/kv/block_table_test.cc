#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

namespace quire {
namespace {

KvGeometry geometry_of(int block_tokens, const std::vector<int>& windows) {
  KvGeometry geometry{.block_tokens = block_tokens, .type = KvType::kF32, .groups = {}};
  for (int window : windows)
    geometry.groups.push_back({.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
  return geometry;
}

struct Pools {
  Pools(size_t groups, int blocks) {
    for (size_t g = 0; g < groups; ++g) {
      owned.push_back(std::make_unique<BlockPool>(blocks));
      pointers.push_back(owned.back().get());
    }
  }
  void audit() const {
    for (const BlockPool* pool : pointers) pool->audit();
  }
  std::vector<std::unique_ptr<BlockPool>> owned;
  std::vector<BlockPool*> pointers;
};

TEST(BlockTable, ReservesInAllGroupsOrInNone) {
  const KvGeometry geometry = geometry_of(4, {0, 8});
  Pools pools(2, 3);
  BlockTable table(geometry, pools.pointers);
  OpenBlock taken = *pools.pointers[1]->lease();
  EXPECT_EQ(table.blocks_wanted(9), (BlockCounts{3, 3}));
  EXPECT_EQ(table.blocks_lacking(9), (BlockCounts{0, 1}));
  EXPECT_FALSE(table.reserve(9));
  EXPECT_EQ(pools.pointers[0]->free_count(), 3);
  EXPECT_TRUE(table.reserve(8));
  EXPECT_EQ(table.blocks_used(), 4);
  EXPECT_EQ(table.blocks_wanted(8), BlockCounts{});
  EXPECT_EQ(table.commit(7), 1);
  EXPECT_EQ(pools.pointers[0]->pinned_count(), 1);
  EXPECT_EQ(table.blocks_wanted(1), BlockCounts{});
  EXPECT_EQ(table.blocks_wanted(2), (BlockCounts{1, 1}));
  table.audit();
  table.release();
  EXPECT_EQ(pools.pointers[0]->free_count(), 3);
}

TEST(BlockTable, DropsExactlyWhatNoFurtherTokenSees) {
  const KvGeometry geometry = geometry_of(4, {5});
  Pools pools(1, 8);
  BlockTable table(geometry, pools.pointers);
  for (int t = 1; t <= 24; ++t) {
    ASSERT_TRUE(table.reserve(1));
    table.commit(1);
    table.drop_left_window();
    // The next query, at position t, sees t - 4 … t.
    for (int position = 0; position < t; ++position) {
      const bool seen = position >= t - 4;
      const bool held = table.ids(0)[static_cast<size_t>(position / 4)] != kNoBlock;
      if (seen) {
        EXPECT_TRUE(held) << t << " " << position;
      }
      if (position % 4 == 3 && position < t - 4) {
        EXPECT_FALSE(held) << t << " " << position;
      }
    }
    table.audit();
  }
  EXPECT_LE(table.blocks_used(), 2);
}

TEST(BlockTable, AForkSharesAllAndCopiesTheTailWhereItIsWritten) {
  const KvGeometry geometry = geometry_of(4, {0, 6});
  Pools pools(2, 8);
  BlockTable parent(geometry, pools.pointers);
  ASSERT_TRUE(parent.reserve(10));
  parent.commit(10);
  BlockTable first = parent.fork(), second = parent.fork();
  EXPECT_EQ(pools.pointers[0]->free_count(), 5);
  EXPECT_TRUE(parent.shares_tail());
  EXPECT_EQ(first.blocks_wanted(1), (BlockCounts{1, 1}));
  EXPECT_EQ(first.blocks_wanted(3), (BlockCounts{2, 2}));
  const BlockId shared = parent.ids(0).back();
  {
    const TailCopy copy = first.unshare_tail();
    EXPECT_EQ(copy.from[0].id(), shared);
    EXPECT_EQ(copy.to[0], first.ids(0).back());
    EXPECT_NE(copy.to[0], shared);
  }
  ASSERT_TRUE(first.reserve(1));
  EXPECT_EQ(first.commit(1), 0);
  TailCopy undone = second.unshare_tail();
  EXPECT_FALSE(parent.shares_tail());  // the last one writes in place
  for (int g = 0; g < 2; ++g) second.reshare_tail(g, std::move(undone.from[static_cast<size_t>(g)]));
  EXPECT_TRUE(parent.shares_tail());
  EXPECT_EQ(second.ids(0).back(), shared);
  second.release();
  EXPECT_FALSE(parent.shares_tail());
  EXPECT_EQ(pools.pointers[0]->free_count(), 4);
  parent.audit();
  first.audit();
}

TEST(BlockTable, AForkAtABlockBorderCopiesNothing) {
  const KvGeometry geometry = geometry_of(4, {0});
  Pools pools(1, 4);
  BlockTable parent(geometry, pools.pointers);
  ASSERT_TRUE(parent.reserve(8));
  parent.commit(8);
  BlockTable child = parent.fork();
  EXPECT_FALSE(child.shares_tail());
  ASSERT_TRUE(child.reserve(1));
  ASSERT_TRUE(parent.reserve(1));
  EXPECT_NE(child.ids(0).back(), parent.ids(0).back());
}

TEST(BlockTable, TrimGivesBackWhatIsNotWritten) {
  const KvGeometry geometry = geometry_of(4, {0});
  Pools pools(1, 8);
  BlockTable table(geometry, pools.pointers);
  ASSERT_TRUE(table.reserve(30));
  table.commit(5);
  table.trim();
  EXPECT_EQ(table.blocks_used(), 2);
  EXPECT_EQ(pools.pointers[0]->free_count(), 6);
  table.audit();
  ASSERT_TRUE(table.reserve(3));
  EXPECT_EQ(table.blocks_used(), 2);
}

TEST(BlockTable, SealsTheTailThatNobodyElseHolds) {
  const KvGeometry geometry = geometry_of(4, {0, 8});
  Pools pools(2, 8);
  BlockTable table(geometry, pools.pointers);
  ASSERT_TRUE(table.reserve(6));
  table.commit(6);
  {
    BlockTable child = table.fork();
    EXPECT_FALSE(child.seal_tail().front());
    EXPECT_EQ(child.tokens_used(), 6);
  }
  const BlockId tail = table.ids(0).back();
  const SealedBlocks sealed = table.seal_tail();
  EXPECT_EQ(sealed[0].id(), tail);
  EXPECT_EQ(pools.pointers[1]->pin_count(sealed[1].id()), 1);
  EXPECT_EQ(table.tokens_used(), 4);
  table.audit();
  EXPECT_FALSE(table.seal_tail().front());  // at a block border there is none
}

TEST(BlockTable, ReleaseLetsChildrenGoBeforeParents) {
  const KvGeometry geometry = geometry_of(2, {0});
  Pools pools(1, 3);
  BlockTable table(geometry, pools.pointers);
  ASSERT_TRUE(table.reserve(6));
  table.commit(6);
  std::vector<BlockId> ids(table.ids(0).begin(), table.ids(0).end());
  for (BlockId id : ids) pools.pointers[0]->set_cached(id, true);
  table.release();
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    EXPECT_EQ(pools.pointers[0]->oldest_idle(), *id);
    pools.pointers[0]->set_cached(*id, false);
  }
}

TEST(BlockTableDeath, WritingWhatIsNotReservedCrashes) {
  const KvGeometry geometry = geometry_of(4, {0});
  Pools pools(1, 2);
  BlockTable table(geometry, pools.pointers);
  ASSERT_TRUE(table.reserve(1));
  EXPECT_DEATH(table.commit(5), "block_table");
}

// Tables over shared pools whose blocks carry simulated rows: each row remembers what was written, so that a
// wrong, lost or overwritten block shows as a wrong row.
class TableWalk {
 public:
  TableWalk(KvGeometry geometry, int blocks, uint64_t seed)
      : geometry_(std::move(geometry)), pools_(geometry_.groups.size(), blocks), rng_(seed) {}

  void step() {
    if (sequences_.empty() || (sequences_.size() < 6 && below(8) == 0)) {
      start();
      return;
    }
    const size_t at = below(sequences_.size());
    if (below(12) == 0) {
      sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    write(*sequences_[at], static_cast<int>(1 + below(11)));
  }

  void check() {
    pools_.audit();
    std::map<std::pair<size_t, BlockId>, int> open;
    for (const auto& sequence : sequences_) {
      sequence->table.audit();
      check_rows(*sequence);
      for (size_t g = 0; g < geometry_.groups.size(); ++g)
        for (BlockId id : sequence->table.ids(static_cast<int>(g)))
          if (id != kNoBlock && pools_.pointers[g]->state(id) == BlockState::kOpen)
            ++open[std::make_pair(g, id)];
    }
    for (const auto& [block, holders] : open)
      ASSERT_EQ(pools_.pointers[block.first]->pin_count(block.second), holders);
  }

  int refusals() const { return refusals_; }
  int tail_copies() const { return tail_copies_; }

 private:
  struct Sequence {
    Sequence(const KvGeometry& geometry, std::span<BlockPool* const> pools) : table(geometry, pools) {}
    explicit Sequence(BlockTable forked) : table(std::move(forked)) {}
    BlockTable table;
    std::vector<uint64_t> rows;  // [position]
  };

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }

  uint64_t& row(size_t group, BlockId id, int position) {
    return bytes_[{group, id.value, position % geometry_.block_tokens}];
  }

  bool sees(size_t group, int query, int position) const {
    const int window = geometry_.groups[group].window;
    return window == 0 || position > query - window;
  }

  void check_rows(Sequence& sequence) {
    const auto next = static_cast<int>(sequence.rows.size());
    for (size_t g = 0; g < geometry_.groups.size(); ++g) {
      for (int p = 0; p < next; ++p) {
        if (!sees(g, next, p)) continue;
        const BlockId id =
            sequence.table.ids(static_cast<int>(g))[static_cast<size_t>(p / geometry_.block_tokens)];
        ASSERT_NE(id, kNoBlock);
        ASSERT_EQ(row(g, id, p), sequence.rows[static_cast<size_t>(p)]);
      }
    }
  }

  void write(Sequence& sequence, int tokens) {
    const BlockCounts lacking = sequence.table.blocks_lacking(tokens);
    const bool fits = lacking == BlockCounts{};
    if (fits && sequence.table.shares_tail()) copy_shared_tail(sequence);
    ASSERT_EQ(sequence.table.reserve(tokens), fits);
    if (!fits) {
      ++refusals_;
      return;
    }
    for (int i = 0; i < tokens; ++i) {
      const auto position = static_cast<int>(sequence.rows.size());
      sequence.rows.push_back(rng_());
      for (size_t g = 0; g < geometry_.groups.size(); ++g) {
        const auto ids = sequence.table.ids(static_cast<int>(g));
        row(g, ids[static_cast<size_t>(position / geometry_.block_tokens)], position) = sequence.rows.back();
      }
    }
    sequence.table.commit(tokens);
    ASSERT_EQ(sequence.table.tokens_used(), static_cast<int>(sequence.rows.size()));
    sequence.table.drop_left_window();
    if (below(4) == 0) sequence.table.trim();
  }

  // A new sequence; often one that shares another's prefix, whole blocks and a part of the next.
  void start() {
    if (!sequences_.empty() && below(3) == 0) {
      Sequence& parent = *sequences_[below(sequences_.size())];
      parent.table.trim();
      sequences_.push_back(std::make_unique<Sequence>(parent.table.fork()));
      sequences_.back()->rows = parent.rows;
      return;
    }
    auto sequence = std::make_unique<Sequence>(geometry_, pools_.pointers);
    if (!sequences_.empty() && below(3) > 0) share(*sequence, *sequences_[below(sequences_.size())]);
    sequences_.push_back(std::move(sequence));
  }

  // In the order of a step: others may write on the shared block before its bytes are copied.
  void copy_shared_tail(Sequence& sequence) {
    TailCopy copy = sequence.table.unshare_tail();
    if (below(4) == 0) {
      for (size_t g = 0; g < geometry_.groups.size(); ++g)
        sequence.table.reshare_tail(static_cast<int>(g), std::move(copy.from[g]));
      ASSERT_TRUE(sequence.table.shares_tail());
      copy = sequence.table.unshare_tail();
    }
    for (size_t g = 0; g < geometry_.groups.size(); ++g)
      for (int i = 0; i < geometry_.block_tokens; ++i) row(g, copy.to[g], i) = row(g, copy.from[g].id(), i);
    ++tail_copies_;
  }

  void share(Sequence& sequence, Sequence& from) {
    const int shared =
        from.table.sealed_count() > 0 ? static_cast<int>(below(from.table.sealed_count() + 1)) : 0;
    const int end = shared * geometry_.block_tokens;
    for (size_t g = 0; g < geometry_.groups.size(); ++g)
      for (int p = 0; p < end; ++p)
        if (sees(g, end, p) &&
            from.table.ids(static_cast<int>(g))[static_cast<size_t>(p / geometry_.block_tokens)] == kNoBlock)
          return;
    for (int i = 0; i < shared; ++i) {
      SealedBlocks blocks;
      for (size_t g = 0; g < geometry_.groups.size(); ++g)
        if (sees(g, end, (i + 1) * geometry_.block_tokens - 1))
          blocks[g] = pools_.pointers[g]->pin(from.table.ids(static_cast<int>(g))[static_cast<size_t>(i)]);
      sequence.table.adopt(std::move(blocks));
    }
    sequence.rows.assign(from.rows.begin(), from.rows.begin() + end);
    copy_tail(sequence, from);
  }

  void copy_tail(Sequence& sequence, Sequence& from) {
    const int end = static_cast<int>(sequence.rows.size());
    const int more = std::min(from.table.tokens_used() - end, geometry_.block_tokens - 1);
    if (more <= 0) return;
    const auto index = static_cast<size_t>(end / geometry_.block_tokens);
    for (size_t g = 0; g < geometry_.groups.size(); ++g)
      if (from.table.ids(static_cast<int>(g))[index] == kNoBlock) return;
    const auto to = sequence.table.adopt_partial(more);
    if (!to) return;
    for (size_t g = 0; g < geometry_.groups.size(); ++g)
      for (int i = 0; i < geometry_.block_tokens; ++i)
        row(g, (*to)[g], i) = row(g, from.table.ids(static_cast<int>(g))[index], i);
    sequence.rows.insert(sequence.rows.end(), from.rows.begin() + end, from.rows.begin() + end + more);
  }

  const KvGeometry geometry_;
  Pools pools_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::map<std::tuple<size_t, int32_t, int>, uint64_t> bytes_;
  std::mt19937_64 rng_;
  int refusals_ = 0, tail_copies_ = 0;
};

struct WalkShape {
  std::vector<int> windows;
  int block_tokens;
  int blocks;
};

TEST(BlockTable, KeepsEveryVisibleRowOverRandomOperations) {
  const WalkShape shapes[] = {
      {{0}, 4, 24}, {{0, 9}, 4, 24}, {{8, 0}, 2, 24}, {{1, 3}, 4, 7}, {{0, 0, 32, 5}, 8, 20}};
  for (uint64_t seed = 0; seed < std::size(shapes); ++seed) {
    const WalkShape& shape = shapes[seed];
    TableWalk walk(geometry_of(shape.block_tokens, shape.windows), shape.blocks, seed);
    for (int i = 0; i < 3000; ++i) {
      walk.step();
      walk.check();
      if (testing::Test::HasFatalFailure()) FAIL() << "shape " << seed << ", operation " << i;
    }
    EXPECT_GT(walk.refusals(), 0) << "shape " << seed << " never exhausted its pool: too tame";
    EXPECT_GT(walk.tail_copies(), 0) << "shape " << seed;
  }
}

}  // namespace
}  // namespace quire
