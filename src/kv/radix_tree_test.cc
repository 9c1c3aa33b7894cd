#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "kv/block_table.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

KvGeometry geometry_of(int block_tokens, const std::vector<int>& windows) {
  KvGeometry geometry{.block_tokens = block_tokens, .type = KvType::kF32, .groups = {}};
  for (int window : windows)
    geometry.groups.push_back({.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
  return geometry;
}

// A tree over pools of its own, and sequences that live as the scheduler lets them live.
class Forest {
 public:
  Forest(KvGeometry geometry, int blocks) : geometry_(std::move(geometry)) {
    std::vector<BlockPool*> pointers;
    for (size_t g = 0; g < geometry_.groups.size(); ++g) {
      pools_.push_back(std::make_unique<BlockPool>(blocks));
      pointers.push_back(pools_.back().get());
    }
    tree_ = std::make_unique<RadixTree>(geometry_, pointers);
    pointers_ = pointers;
  }

  struct Sequence {
    Sequence(const KvGeometry& geometry, std::span<BlockPool* const> pools) : table(geometry, pools) {}
    CacheScope scope;
    Tokens tokens;
    BlockTable table;
    PrefixNodeId tip = kNoPrefixNode;
  };

  // A sequence that shares what the tree has of `tokens`.
  std::unique_ptr<Sequence> begin(CacheScope scope, Tokens tokens) {
    auto sequence = std::make_unique<Sequence>(geometry_, pointers_);
    sequence->scope = scope;
    sequence->tokens = std::move(tokens);
    const PrefixMatch match = tree_->match(scope, sequence->tokens);
    const auto hit = static_cast<int>(match.path.size()) * geometry_.block_tokens;
    for (size_t i = 0; i < match.path.size(); ++i) {
      SealedBlocks blocks;
      for (size_t g = 0; g < pools_.size(); ++g) {
        const int window = geometry_.groups[g].window;
        const int last = (static_cast<int>(i) + 1) * geometry_.block_tokens - 1;
        if (window == 0 || last > hit - window)
          blocks[g] = pools_[g]->pin(tree_->block(match.path[i], static_cast<int>(g)));
      }
      sequence->table.adopt(std::move(blocks));
    }
    sequence->tip = match.path.empty() ? kNoPrefixNode : match.path.back();
    tree_->hold(sequence->tip);
    return sequence;
  }

  // Computes the next block; false when there is no room for it.
  bool grow(Sequence& sequence) {
    const auto block_tokens = static_cast<size_t>(geometry_.block_tokens);
    if (!sequence.table.reserve(geometry_.block_tokens)) return false;
    const auto index = static_cast<size_t>(sequence.table.sealed_count());
    CHECK(sequence.table.commit(geometry_.block_tokens) == 1);
    BlockIds ids;
    ids.fill(kNoBlock);
    for (size_t g = 0; g < pools_.size(); ++g) ids[g] = sequence.table.ids(static_cast<int>(g))[index];
    const PrefixNodeId node =
        tree_->insert({.scope = sequence.scope,
                       .parent = sequence.tip,
                       .tokens = std::span(sequence.tokens).subspan(index * block_tokens, block_tokens),
                       .blocks = std::span(ids).first(pools_.size())});
    for (size_t g = 0; g < pools_.size(); ++g) {
      const BlockId winner = tree_->block(node, static_cast<int>(g));
      if (winner != ids[g])
        sequence.table.replace(static_cast<int>(g), static_cast<int>(index), pools_[g]->pin(winner));
    }
    tree_->hold(node);
    tree_->release(sequence.tip);
    sequence.tip = node;
    sequence.table.drop_left_window();
    return true;
  }

  void end(Sequence& sequence) {
    tree_->release(sequence.tip);
    sequence.table.release();
  }

  // Begins, grows and ends; CHECKs that there is room.
  void cache(CacheScope scope, const Tokens& tokens) {
    auto sequence = begin(scope, tokens);
    while (sequence->table.tokens_used() + geometry_.block_tokens <= static_cast<int>(tokens.size()))
      CHECK(grow(*sequence));
    end(*sequence);
  }

  RadixTree& tree() { return *tree_; }
  BlockPool& pool(size_t group) { return *pools_[group]; }
  const KvGeometry& geometry() const { return geometry_; }

 private:
  const KvGeometry geometry_;
  std::vector<std::unique_ptr<BlockPool>> pools_;
  std::vector<BlockPool*> pointers_;
  std::unique_ptr<RadixTree> tree_;
};

constexpr CacheScope kScope{1};

TEST(RadixTree, AnEmptyTreeMatchesNothing) {
  Forest forest(geometry_of(4, {0}), 4);
  const PrefixMatch match = forest.tree().match(kScope, Tokens{1, 2, 3, 4, 5});
  EXPECT_TRUE(match.path.empty());
  EXPECT_EQ(match.partial, kNoPrefixNode);
  EXPECT_FALSE(forest.tree().evict_one(0));
}

TEST(RadixTree, MatchesWholeBlocksAndThenSingleTokens) {
  Forest forest(geometry_of(4, {0}), 8);
  forest.cache(kScope, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto matched = [&](const Tokens& tokens) {
    const PrefixMatch match = forest.tree().match(kScope, tokens);
    return std::pair(match.path.size(), match.partial_tokens);
  };
  EXPECT_EQ(matched({1, 2, 3, 4, 5, 6, 7, 8, 9}), std::pair(size_t{2}, 0));
  EXPECT_EQ(matched({1, 2, 3, 4, 5, 6, 7}), std::pair(size_t{1}, 3));
  EXPECT_EQ(matched({1, 2, 3, 4, 5, 6, 9, 8}), std::pair(size_t{1}, 2));
  EXPECT_EQ(matched({1, 2}), std::pair(size_t{0}, 2));
  EXPECT_EQ(matched({2, 2, 3, 4}), std::pair(size_t{0}, 0));
  EXPECT_EQ(matched({}), std::pair(size_t{0}, 0));
}

TEST(RadixTree, ScopesNeverShare) {
  Forest forest(geometry_of(2, {0}), 8);
  forest.cache(kScope, {1, 2, 3, 4});
  EXPECT_TRUE(forest.tree().match(CacheScope{2}, Tokens{1, 2, 3, 4}).path.empty());
  forest.cache(CacheScope{2}, {1, 2, 3, 4});
  EXPECT_EQ(forest.tree().node_count(), 4);
  EXPECT_NE(forest.tree().match(CacheScope{2}, Tokens{1, 2}).path,
            forest.tree().match(kScope, Tokens{1, 2}).path);
}

TEST(RadixTree, TheOlderOfTwoEqualBlocksWins) {
  Forest forest(geometry_of(4, {0}), 8);
  auto first = forest.begin(kScope, {1, 2, 3, 4});
  auto second = forest.begin(kScope, {1, 2, 3, 4});  // nothing cached yet: both compute
  ASSERT_TRUE(forest.grow(*first));
  ASSERT_TRUE(forest.grow(*second));
  EXPECT_EQ(first->table.ids(0)[0], second->table.ids(0)[0]);
  EXPECT_EQ(forest.pool(0).pinned_count(), 1);
  EXPECT_EQ(forest.pool(0).free_count(), 7);
  forest.end(*first);
  forest.end(*second);
  EXPECT_EQ(forest.pool(0).idle_count(), 1);
}

TEST(RadixTree, EvictsTheLeafThatWasUsedLongestAgo) {
  Forest forest(geometry_of(2, {0}), 8);
  forest.cache(kScope, {1, 1, 2, 2});
  forest.cache(kScope, {1, 1, 3, 3});
  forest.tree().touch(forest.tree().match(kScope, Tokens{1, 1, 2, 2}));
  const auto blocks = [&](const Tokens& tokens) { return forest.tree().match(kScope, tokens).path.size(); };
  ASSERT_TRUE(forest.tree().evict_one(0));
  EXPECT_EQ(blocks({1, 1, 3, 3}), 1u);
  EXPECT_EQ(blocks({1, 1, 2, 2}), 2u);
  ASSERT_TRUE(forest.tree().evict_one(0));
  EXPECT_EQ(blocks({1, 1, 2, 2}), 1u);
  ASSERT_TRUE(forest.tree().evict_one(0));
  EXPECT_FALSE(forest.tree().evict_one(0));
  EXPECT_EQ(forest.tree().node_count(), 0);
  forest.tree().audit();
}

TEST(RadixTree, AHitNeedsTheWindowsBlocks) {
  // Window 5 over blocks of 2: a hit that ends at t needs positions t - 4 … t - 1 of group 1.
  Forest forest(geometry_of(2, {0, 5}), 16);
  const Tokens tokens{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
  forest.cache(kScope, tokens);
  const auto hit = [&](size_t count) {
    return forest.tree().match(kScope, std::span(tokens).first(count)).path.size();
  };
  EXPECT_EQ(hit(12), 6u);
  // Blocks left the window from the front, so the first ones are the oldest idle ones.
  ASSERT_TRUE(forest.tree().evict_one(1));
  ASSERT_TRUE(forest.tree().evict_one(1));
  forest.tree().audit();
  EXPECT_EQ(forest.tree().node_count(), 6);
  EXPECT_EQ(hit(12), 6u);
  EXPECT_EQ(hit(8), 4u);
  EXPECT_EQ(hit(6), 0u);  // needs positions 2 … 5, but 2 and 3 are gone
  // Computing them again fills the tombstones.
  forest.cache(kScope, {1, 1, 2, 2, 3, 3});
  EXPECT_EQ(hit(6), 3u);
  EXPECT_EQ(forest.tree().node_count(), 6);
}

TEST(RadixTree, WhatNoHitWillUseIsFreedAtOnce) {
  // Window 5 over blocks of 2: a hit needs the last two blocks of group 1.
  Forest forest(geometry_of(2, {0, 5}), 16);
  forest.cache(kScope, {1, 1, 2, 2, 3, 3, 4, 4});
  forest.cache(kScope, {9, 9, 8, 8});
  ASSERT_EQ(forest.pool(0).idle_count(), 6);
  // Blocks 1 and 2 of the first text left its window first: the text's end can still be hit.
  ASSERT_TRUE(forest.tree().evict_one(1));
  ASSERT_TRUE(forest.tree().evict_one(1));
  EXPECT_EQ(forest.pool(0).idle_count(), 6);
  // Then the window's block at its very end: no place of the text serves any more, whatever group 0 has.
  ASSERT_TRUE(forest.tree().evict_one(1));
  EXPECT_EQ(forest.tree().node_count(), 2);
  EXPECT_EQ(forest.pool(0).idle_count(), 2);
  EXPECT_EQ(forest.pool(1).idle_count(), 2);
  EXPECT_EQ(forest.tree().match(kScope, Tokens{9, 9, 8, 8}).path.size(), 2u);
  forest.tree().audit();
}

TEST(RadixTree, ADroppedScopeIsForgottenAndItsSequencesGoOn) {
  Forest forest(geometry_of(2, {0}), 16);
  auto living = forest.begin(kScope, {1, 1, 2, 2, 3, 3});
  ASSERT_TRUE(forest.grow(*living));
  ASSERT_TRUE(forest.grow(*living));
  forest.cache(kScope, {1, 1, 7, 7});
  forest.cache(CacheScope{2}, {1, 1});
  forest.tree().drop_scope(kScope);
  forest.tree().drop_scope(CacheScope{3});  // never used: nothing happens
  EXPECT_TRUE(forest.tree().match(kScope, Tokens{1, 1, 7, 7}).path.empty());
  EXPECT_EQ(forest.tree().match(CacheScope{2}, Tokens{1, 1}).path.size(), 1u);
  EXPECT_EQ(forest.tree().node_count(), 2 + 1);
  EXPECT_EQ(forest.pool(0).idle_count(), 1);
  forest.tree().audit();
  ASSERT_TRUE(forest.grow(*living));
  forest.tree().audit();
  forest.end(*living);
  EXPECT_EQ(forest.tree().node_count(), 1);
  EXPECT_EQ(forest.pool(0).free_count(), 15);
  forest.tree().audit();
}

// What the tree must say, from a sorted map of token vectors.
class TreeWalk {
 public:
  TreeWalk(KvGeometry geometry, int blocks, uint64_t seed)
      : forest_(std::move(geometry), blocks), groups_(forest_.geometry().groups.size()), rng_(seed) {}
  ~TreeWalk() {
    for (auto& sequence : live_) forest_.end(*sequence);
  }

  void step() {
    if (below(100) == 0) drop_scope();
    switch (below(8)) {
      case 0:
        if (live_.size() < 5) live_.push_back(begin());
        break;
      case 1:
        if (!live_.empty()) end(below(live_.size()));
        break;
      case 2:
        evict(below(groups_));
        break;
      case 3:
        forest_.tree().touch(forest_.tree().match(scope(), random_tokens()));
        break;
      default:
        if (!live_.empty()) grow(*live_[below(live_.size())]);
        break;
    }
    prune();
  }

  void check() {
    forest_.tree().audit();
    for (size_t g = 0; g < groups_; ++g) forest_.pool(g).audit();
    ASSERT_EQ(forest_.tree().node_count(), static_cast<int>(cached_.size()));
    for (int i = 0; i < 4; ++i) check_match(scope(), random_tokens());
  }

  int hits() const { return hits_; }
  int partial_hits() const { return partial_hits_; }

 private:
  struct Key {
    CacheScope scope;
    Tokens prefix;  // whole blocks, the node's own last
    auto operator<=>(const Key&) const = default;
  };

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
  CacheScope scope() { return CacheScope{first_scope_ + below(2)}; }
  size_t block() const { return static_cast<size_t>(forest_.geometry().block_tokens); }

  // Few letters, mostly equal ones: many common prefixes of every length.
  Tokens random_tokens() {
    Tokens tokens(below(block() * 8));
    for (TokenId& token : tokens) token = below(10) == 0 ? static_cast<TokenId>(below(3)) : 0;
    return tokens;
  }

  std::unique_ptr<Forest::Sequence> begin() {
    auto sequence = forest_.begin(scope(), random_tokens());
    sequence->table.drop_left_window();
    return sequence;
  }

  void end(size_t index) {
    forest_.end(*live_[index]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void grow(Forest::Sequence& sequence) {
    if (sequence.table.tokens_used() + block() > sequence.tokens.size()) return;
    while (sequence.table.blocks_lacking(static_cast<int>(block())) != BlockCounts{}) {
      const BlockCounts lacking = sequence.table.blocks_lacking(static_cast<int>(block()));
      for (size_t g = 0; g < groups_; ++g)
        if (lacking[g] > 0 && !evict(g)) return;
    }
    ASSERT_TRUE(forest_.grow(sequence));
    const Key key{sequence.scope,
                  Tokens(sequence.tokens.begin(), sequence.tokens.begin() + sequence.table.tokens_used())};
    BlockIds& ids = cached_.try_emplace(key, no_blocks()).first->second;
    // In a window group the own block may be gone already; then the tree's is what insert() was given.
    for (size_t g = 0; g < groups_; ++g) {
      const BlockId own = sequence.table.ids(static_cast<int>(g)).back();
      const BlockId tree = forest_.tree().block(sequence.tip, static_cast<int>(g));
      if (ids[g] != kNoBlock) {
        ASSERT_EQ(tree, ids[g]) << "a newer block won";
      }
      if (own != kNoBlock) {
        ASSERT_EQ(tree, own);
      }
      ids[g] = tree;
      ASSERT_NE(tree, kNoBlock);
    }
  }

  bool evict(size_t group) {
    const BlockId oldest = forest_.pool(group).oldest_idle();
    const bool evicted = forest_.tree().evict_one(static_cast<int>(group));
    EXPECT_EQ(evicted, oldest != kNoBlock);
    if (!evicted) return false;
    const auto entry =
        std::ranges::find_if(cached_, [&](const auto& e) { return e.second[group] == oldest; });
    EXPECT_NE(entry, cached_.end());
    if (forest_.geometry().groups[group].window > 0) {
      entry->second[group] = kNoBlock;
    } else {
      const auto after = std::next(entry);
      EXPECT_FALSE(after != cached_.end() && is_below(after->first, entry->first)) << "not a leaf";
      cached_.erase(entry);
    }
    prune();
    return true;
  }

  // Living sequences go on, save those that have cached nothing yet: they would make the scope anew.
  void drop_scope() {
    const CacheScope scope{first_scope_++};
    for (size_t i = live_.size(); i-- > 0;)
      if (live_[i]->scope == scope && live_[i]->tip == kNoPrefixNode) end(i);
    forest_.tree().drop_scope(scope);
    dropped_.insert(scope);
  }

  static bool is_below(const Key& key, const Key& prefix) {
    return key.scope == prefix.scope && key.prefix.size() >= prefix.prefix.size() &&
           std::equal(prefix.prefix.begin(), prefix.prefix.end(), key.prefix.begin());
  }

  // Entries at which no hit can end remain only as the way to others, or for a living sequence's next block.
  void prune() {
    for (auto entry = cached_.end(); entry != cached_.begin();) {
      --entry;
      const auto& [key, ids] = *entry;
      const bool has_block = std::ranges::any_of(ids, [](BlockId id) { return id != kNoBlock; });
      if (has_block && servable(key.scope, key.prefix, key.prefix.size())) continue;
      const auto after = std::next(entry);
      if (after != cached_.end() && is_below(after->first, key)) continue;
      if (std::ranges::any_of(live_, [&](const auto& s) { return is_tip(*s, key); })) continue;
      entry = cached_.erase(entry);
    }
  }

  static bool is_tip(const Forest::Sequence& sequence, const Key& key) {
    return sequence.scope == key.scope &&
           static_cast<size_t>(sequence.table.tokens_used()) == key.prefix.size() &&
           std::equal(key.prefix.begin(), key.prefix.end(), sequence.tokens.begin());
  }

  // By definition, position by position.
  bool servable(CacheScope scope, const Tokens& tokens, size_t end) const {
    if (dropped_.contains(scope)) return false;
    for (size_t g = 0; g < groups_; ++g) {
      const auto window = static_cast<size_t>(forest_.geometry().groups[g].window);
      for (size_t p = 0; p < end; ++p) {
        const auto entry = cached_.find(Key{scope, prefix_of(tokens, p / block() + 1)});
        if (entry == cached_.end()) return false;
        if ((window == 0 || p + window > end) && entry->second[g] == kNoBlock) return false;
      }
    }
    return true;
  }

  Tokens prefix_of(const Tokens& tokens, size_t blocks) const {
    return Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(blocks * block()));
  }

  size_t best_partial(CacheScope scope, const Tokens& tokens, size_t blocks) const {
    size_t best = 0;
    for (const auto& [key, ids] : cached_) {
      if (key.scope != scope || key.prefix.size() != (blocks + 1) * block()) continue;
      if (!std::equal(key.prefix.begin(), key.prefix.begin() + static_cast<std::ptrdiff_t>(blocks * block()),
                      tokens.begin()))
        continue;
      if (std::any_of(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(groups_),
                      [](BlockId id) { return id == kNoBlock; }))
        continue;
      size_t equal = 0;
      for (size_t p = blocks * block(); p < std::min(tokens.size(), key.prefix.size()); ++p, ++equal)
        if (tokens[p] != key.prefix[p]) break;
      best = std::max(best, equal);
    }
    return best;
  }

  void check_match(CacheScope scope, const Tokens& tokens) {
    size_t blocks = 0;
    for (size_t n = 1; n * block() <= tokens.size(); ++n)
      if (servable(scope, tokens, n * block())) blocks = n;
    const PrefixMatch match = forest_.tree().match(scope, tokens);
    ASSERT_EQ(match.path.size(), blocks);
    for (size_t i = 0; i < blocks; ++i) {
      const BlockIds& ids = cached_.at(Key{scope, prefix_of(tokens, i + 1)});
      for (size_t g = 0; g < groups_; ++g)
        ASSERT_EQ(forest_.tree().block(match.path[i], static_cast<int>(g)), ids[g]);
    }
    hits_ += blocks > 0;
    partial_hits_ += match.partial_tokens > 0;
    const size_t best = best_partial(scope, tokens, blocks);
    const auto is_window = [](const LayerGroup& group) { return group.window > 0; };
    if (std::ranges::none_of(forest_.geometry().groups, is_window)) {
      ASSERT_EQ(static_cast<size_t>(match.partial_tokens), best);
    } else {
      // Tombstones among the siblings may hide the best one.
      ASSERT_LE(static_cast<size_t>(match.partial_tokens), best);
    }
    ASSERT_EQ(match.partial == kNoPrefixNode, match.partial_tokens == 0);
  }

  static BlockIds no_blocks() {
    BlockIds ids;
    ids.fill(kNoBlock);
    return ids;
  }

  Forest forest_;
  const size_t groups_;
  std::mt19937_64 rng_;
  std::vector<std::unique_ptr<Forest::Sequence>> live_;
  std::map<Key, BlockIds> cached_;
  std::set<CacheScope> dropped_;
  uint64_t first_scope_ = 0;  // of the two that are in use
  int hits_ = 0, partial_hits_ = 0;
};

TEST(RadixTree, AgreesWithASortedMapOverRandomOperations) {
  const std::vector<int> shapes[] = {{0}, {0, 9}, {7, 0}, {5, 11}, {0, 0}};
  for (uint64_t seed = 0; seed < std::size(shapes); ++seed) {
    TreeWalk walk(geometry_of(4, shapes[seed]), 20, seed);
    for (int i = 0; i < 4000; ++i) {
      walk.step();
      walk.check();
      if (testing::Test::HasFatalFailure()) FAIL() << "shape " << seed << ", operation " << i;
    }
    EXPECT_GT(walk.hits(), 1000) << "shape " << seed;
    EXPECT_GT(walk.partial_hits(), 1000) << "shape " << seed;
  }
}

}  // namespace
}  // namespace quire
