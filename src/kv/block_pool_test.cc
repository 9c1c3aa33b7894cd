#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

static_assert(!std::is_copy_constructible_v<OpenBlock>);
static_assert(std::is_nothrow_move_constructible_v<OpenBlock>);
static_assert(std::is_nothrow_move_constructible_v<SealedBlock>);

TEST(BlockPool, LeasesEachFrameOnceAndThenRefuses) {
  BlockPool pool(3);
  std::vector<OpenBlock> open;
  std::set<BlockId> ids;
  for (int i = 0; i < 3; ++i) {
    auto block = pool.lease();
    ASSERT_TRUE(block);
    ids.insert(block->id());
    open.push_back(std::move(*block));
  }
  EXPECT_EQ(ids, (std::set<BlockId>{BlockId{0}, BlockId{1}, BlockId{2}}));
  EXPECT_FALSE(pool.lease());
  EXPECT_EQ(pool.open_count(), 3);
  open.clear();
  EXPECT_EQ(pool.free_count(), 3);
  pool.audit();
}

TEST(BlockPool, AnEmptyPoolRefuses) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.lease());
  EXPECT_EQ(pool.oldest_idle(), kNoBlock);
  pool.audit();
}

TEST(BlockPool, UncachedBlocksAreFreeAfterTheLastPin) {
  BlockPool pool(1);
  SealedBlock first = pool.seal(*pool.lease());
  SealedBlock second = first;
  first = SealedBlock();
  EXPECT_EQ(pool.pin_count(second.id()), 1);
  EXPECT_EQ(pool.pinned_count(), 1);
  second = SealedBlock();
  EXPECT_EQ(pool.free_count(), 1);
  pool.audit();
}

TEST(BlockPool, CachedBlocksGoIdleInOrderOfRelease) {
  BlockPool pool(3);
  std::vector<SealedBlock> pins;
  for (int i = 0; i < 3; ++i) {
    pins.push_back(pool.seal(*pool.lease()));
    pool.set_cached(pins.back().id(), true);
  }
  const BlockId a = pins[0].id(), b = pins[1].id(), c = pins[2].id();
  pins[1] = SealedBlock();
  pins[0] = SealedBlock();
  pins[2] = SealedBlock();
  EXPECT_EQ(pool.idle_count(), 3);
  EXPECT_EQ(pool.oldest_idle(), b);
  (void)pool.pin(b);  // used and let go at once: now the youngest
  EXPECT_EQ(pool.oldest_idle(), a);
  pool.set_cached(a, false);
  EXPECT_EQ(pool.state(a), BlockState::kFree);
  EXPECT_EQ(pool.oldest_idle(), c);
  pool.audit();
}

TEST(BlockPool, SelfAssignmentKeepsThePin) {
  BlockPool pool(1);
  SealedBlock block = pool.seal(*pool.lease());
  SealedBlock& alias = block;
  block = alias;
  EXPECT_EQ(pool.pin_count(block.id()), 1);
}

TEST(BlockPoolDeath, WrongUseCrashes) {
  BlockPool pool(2);
  OpenBlock open = *pool.lease();
  EXPECT_DEATH((void)pool.pin(open.id()), "block_pool");
  EXPECT_DEATH(pool.set_cached(open.id(), true), "block_pool");
  EXPECT_DEATH((void)pool.pin(BlockId{2}), "block_pool");
  EXPECT_DEATH((void)pool.pin(kNoBlock), "block_pool");
  EXPECT_DEATH(
      {
        BlockPool leaking(1);
        new OpenBlock(*leaking.lease());
      },
      "open_count_ == 0");
}

TEST(BlockPool, ASharedOpenBlockIsFreedByItsLastHolderOrKeeper) {
  BlockPool pool(2);
  OpenBlock first = *pool.lease();
  OpenBlock second = pool.share(first);
  const BlockId id = first.id();
  EXPECT_EQ(pool.pin_count(id), 2);
  KeptBlock kept = pool.keep(std::move(second));
  EXPECT_EQ(pool.pin_count(id), 1);
  first = OpenBlock();
  EXPECT_EQ(pool.state(id), BlockState::kOpen);
  pool.audit();
  first = pool.reopen(std::move(kept));
  EXPECT_EQ(pool.keep_count(id), 0);
  kept = pool.keep(std::move(first));
  EXPECT_EQ(pool.free_count(), 1);
  kept = KeptBlock();
  EXPECT_EQ(pool.free_count(), 2);
  pool.audit();
}

TEST(BlockPoolDeath, ASharedBlockIsNotSealed) {
  BlockPool pool(1);
  OpenBlock first = *pool.lease();
  OpenBlock second = pool.share(first);
  EXPECT_DEATH((void)pool.seal(std::move(first)), "block_pool");
}

// Plain containers that say what the pool must say.
struct PoolModel {
  std::set<int> free;
  std::map<int, int> open;    // id → holders
  std::map<int, int> pinned;  // id → pins
  std::deque<int> idle;
  std::set<int> cached;

  void unpin(int id) {
    if (--pinned[id] > 0) return;
    pinned.erase(id);
    if (cached.contains(id)) {
      idle.push_back(id);
    } else {
      free.insert(id);
    }
  }
  void pin(int id) {
    std::erase(idle, id);
    ++pinned[id];
  }
};

class PoolWalk {
 public:
  explicit PoolWalk(int blocks) : pool_(blocks) {
    for (int i = 0; i < blocks; ++i) model_.free.insert(i);
  }

  void step() {
    if (below(100) == 0) thin_out();
    switch (below(10)) {
      case 0:
      case 1:
        lease();
        break;
      case 2:
        seal();
        break;
      case 3:
        share();
        break;
      case 4:
        pin_any();
        break;
      case 5:
        unpin();
        break;
      case 6:
        drop_open();
        break;
      case 7:
        share_open();
        break;
      case 8:
        lease_range();
        break;
      default:
        toggle_cached();
        break;
    }
  }

  void compare() const {
    ASSERT_EQ(pool_.free_count(), static_cast<int>(model_.free.size()));
    ASSERT_EQ(pool_.open_count(), static_cast<int>(model_.open.size()));
    ASSERT_EQ(pool_.pinned_count(), static_cast<int>(model_.pinned.size()));
    ASSERT_EQ(pool_.idle_count(), static_cast<int>(model_.idle.size()));
    ASSERT_EQ(pool_.oldest_idle().value, model_.idle.empty() ? -1 : model_.idle.front());
    for (const auto& [id, holders] : model_.open) ASSERT_EQ(pool_.pin_count(BlockId{id}), holders);
    for (const auto& [id, pins] : model_.pinned) ASSERT_EQ(pool_.pin_count(BlockId{id}), pins);
  }

  // Lets everything go, in no order, and forgets what is cached.
  void end() {
    std::ranges::shuffle(open_, rng_);
    std::ranges::shuffle(sealed_, rng_);
    open_.clear();
    sealed_.clear();
    while (pool_.oldest_idle() != kNoBlock) pool_.set_cached(pool_.oldest_idle(), false);
  }

  const BlockPool& pool() const { return pool_; }
  int ranges() const { return ranges_; }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }

  void lease() {
    auto block = pool_.lease();
    ASSERT_EQ(block.has_value(), !model_.free.empty());
    if (!block) return;
    ASSERT_EQ(model_.free.erase(block->id().value), 1u);
    model_.open[block->id().value] = 1;
    open_.push_back(std::move(*block));
  }
  // Most go, so that there are ranges to find.
  void thin_out() {
    for (size_t n = open_.size(); n > 2; --n) drop_open();
    for (size_t n = sealed_.size(); n > 2; --n) unpin();
    while (model_.idle.size() > 3) {
      const int id = model_.idle.front();
      pool_.set_cached(BlockId{id}, false);
      model_.cached.erase(id);
      model_.idle.pop_front();
      model_.free.insert(id);
    }
  }
  // The first free ids in a row.
  int first_range(int count) const {
    for (int id : model_.free) {
      int run = 0;
      while (run < count && model_.free.contains(id + run)) ++run;
      if (run == count) return id;
    }
    return -1;
  }
  void lease_range() {
    const int count = 1 + static_cast<int>(below(4));
    const int first = first_range(count);
    std::vector<OpenBlock> range = pool_.lease_range(count);
    ASSERT_EQ(range.empty(), first < 0);
    for (int i = 0; i < static_cast<int>(range.size()); ++i) {
      ASSERT_EQ(range[static_cast<size_t>(i)].id().value, first + i);
      model_.free.erase(first + i);
      model_.open[first + i] = 1;
      open_.push_back(std::move(range[static_cast<size_t>(i)]));
    }
    ranges_ += first >= 0 && count > 1;
  }
  void seal() {
    if (open_.empty()) return;
    OpenBlock block = take(open_);
    const int id = block.id().value;
    if (model_.open.at(id) > 1) {
      open_.push_back(std::move(block));
      return;
    }
    model_.open.erase(id);
    model_.pinned[id] = 1;
    sealed_.push_back(pool_.seal(std::move(block)));
  }
  void share() {
    if (sealed_.empty() || sealed_.size() > 200) return;
    SealedBlock copy = sealed_[below(sealed_.size())];
    model_.pin(copy.id().value);
    sealed_.push_back(std::move(copy));
  }
  void pin_any() {
    const int id = static_cast<int>(below(static_cast<size_t>(pool_.total())));
    const BlockState state = pool_.state(BlockId{id});
    if (state != BlockState::kPinned && state != BlockState::kIdle) return;
    model_.pin(id);
    sealed_.push_back(pool_.pin(BlockId{id}));
  }
  void unpin() {
    if (sealed_.empty()) return;
    const int id = sealed_[below(sealed_.size())].id().value;
    for (size_t i = 0; i < sealed_.size(); ++i) {
      if (sealed_[i].id().value != id) continue;
      sealed_[i] = std::move(sealed_.back());
      sealed_.pop_back();
      break;
    }
    model_.unpin(id);
  }
  void drop_open() {
    if (open_.empty()) return;
    OpenBlock block = take(open_);
    if (--model_.open.at(block.id().value) > 0) return;
    model_.open.erase(block.id().value);
    model_.free.insert(block.id().value);
  }
  void share_open() {
    if (open_.empty() || open_.size() > 100) return;
    OpenBlock other = pool_.share(open_[below(open_.size())]);
    ++model_.open.at(other.id().value);
    open_.push_back(std::move(other));
  }
  void toggle_cached() {
    const int id = static_cast<int>(below(static_cast<size_t>(pool_.total())));
    const bool pinned = model_.pinned.contains(id);
    const bool idle = std::find(model_.idle.begin(), model_.idle.end(), id) != model_.idle.end();
    if (!pinned && !idle) return;
    const bool cache = below(3) > 0;
    pool_.set_cached(BlockId{id}, cache);
    if (cache) {
      model_.cached.insert(id);
    } else {
      model_.cached.erase(id);
      if (idle) {
        std::erase(model_.idle, id);
        model_.free.insert(id);
      }
    }
  }
  template <class Block>
  Block take(std::vector<Block>& from) {
    std::swap(from[below(from.size())], from.back());
    Block block = std::move(from.back());
    from.pop_back();
    return block;
  }

  std::mt19937_64 rng_{7};
  BlockPool pool_;
  PoolModel model_;
  std::vector<OpenBlock> open_;
  std::vector<SealedBlock> sealed_;
  int ranges_ = 0;
};

TEST(BlockPool, AgreesWithPlainContainersOverRandomOperations) {
  PoolWalk walk(40);
  for (int i = 0; i < 100'000; ++i) {
    walk.step();
    walk.compare();
    if (testing::Test::HasFatalFailure()) FAIL() << "after operation " << i;
    if (i % 64 == 0) walk.pool().audit();
  }
  EXPECT_GT(walk.ranges(), 1000);
  walk.end();
  walk.pool().audit();
  EXPECT_EQ(walk.pool().free_count(), 40);
}

TEST(BlockPool, RangesAreTheFirstThatFit) {
  BlockPool pool(10);
  auto first = pool.lease_range(3);
  auto second = pool.lease_range(2);
  auto third = pool.lease_range(5);
  ASSERT_EQ(third.size(), 5u);
  EXPECT_EQ(third.front().id(), BlockId{5});
  EXPECT_TRUE(pool.lease_range(1).empty());
  first.clear();
  third.resize(3);  // free: 0 1 2, 8 9
  pool.audit();
  EXPECT_TRUE(pool.lease_range(4).empty());
  EXPECT_EQ(pool.free_count(), 5);
  EXPECT_EQ(pool.free_in_ranges_below(3), 2);
  EXPECT_EQ(pool.free_in_ranges_below(4), 5);
  EXPECT_EQ(pool.free_in_ranges_below(2), 0);
  const auto again = pool.lease_range(2);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].id(), BlockId{0});
  EXPECT_EQ(again[1].id(), BlockId{1});
  pool.audit();
  // What lease() hands out beside ranges is free, too.
  const auto single = pool.lease();
  ASSERT_TRUE(single);
  pool.audit();
  EXPECT_EQ(pool.free_count(), 2);
}

}  // namespace
}  // namespace quire
