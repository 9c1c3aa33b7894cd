// What the prefix tree costs when it is large: 200,000 nodes of 32 tokens, prompts of 4,096 tokens.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "kv/radix_tree.h"

namespace quire {
namespace {

constexpr int kNodes = 200'000;
constexpr int kBlockTokens = 32;
constexpr int kPromptBlocks = 128;
constexpr int kSharedBlocks = 16;  // that prompts of one family begin with
constexpr int kFamilies = 64;
constexpr CacheScope kScope{1};

using Tokens = std::vector<TokenId>;

class FullTree {
 public:
  FullTree() : pool_(kNodes), tree_(geometry(), {&pool_}) { fill(); }

  void fill() {
    for (int prompt = 0; pool_.free_count() > 0; ++prompt) {
      prompts_.push_back(prompt_of(prompt));
      cache(prompts_.back());
    }
  }

  RadixTree& tree() { return tree_; }
  BlockPool& pool() { return pool_; }
  const std::vector<Tokens>& prompts() const { return prompts_; }

 private:
  static KvGeometry geometry() {
    KvGeometry geometry{.block_tokens = kBlockTokens, .type = KvType::kF16, .groups = {}};
    geometry.groups.push_back({.layers = {0}, .kv_heads = 1, .key_dim = 32, .value_dim = 32, .window = 0});
    return geometry;
  }

  static Tokens prompt_of(int prompt) {
    const auto draw = [](uint64_t seed, int blocks, Tokens& tokens) {
      std::mt19937_64 rng(seed);
      for (int i = 0; i < blocks * kBlockTokens; ++i) tokens.push_back(static_cast<TokenId>(rng() % 50'000));
    };
    Tokens tokens;
    draw(static_cast<uint64_t>(prompt % kFamilies), kSharedBlocks, tokens);
    draw(static_cast<uint64_t>(1'000 + prompt), kPromptBlocks - kSharedBlocks, tokens);
    return tokens;
  }

  void cache(const Tokens& tokens) {
    std::vector<SealedBlock> held;
    PrefixNodeId tip = kNoPrefixNode;
    for (int i = 0; i < kPromptBlocks; ++i) {
      const auto block = std::span(tokens).subspan(static_cast<size_t>(i) * kBlockTokens, kBlockTokens);
      const PrefixNodeId found = tree_.find(kScope, tip, block);
      if (found != kNoPrefixNode) {
        held.push_back(pool_.pin(tree_.block(found, 0)));
        tip = found;
        continue;
      }
      auto open = pool_.lease();
      if (!open) break;
      held.push_back(pool_.seal(*std::move(open)));
      const BlockId id = held.back().id();
      tip = tree_.insert({.scope = kScope, .parent = tip, .tokens = block, .blocks = {&id, 1}});
    }
    while (!held.empty()) held.pop_back();
  }

  BlockPool pool_;
  RadixTree tree_;
  std::vector<Tokens> prompts_;
};

void match_4096_tokens(benchmark::State& state) {
  FullTree full;
  CHECK(full.tree().node_count() == kNodes);
  std::mt19937_64 rng(1);
  // The last prompt may be cut short by the pool's end.
  const size_t whole = full.prompts().size() - 1;
  for (auto _ : state) {
    const PrefixMatch match = full.tree().match(kScope, full.prompts()[rng() % whole]);
    CHECK(match.path.size() == kPromptBlocks);
    benchmark::DoNotOptimize(match.path.data());
  }
}
BENCHMARK(match_4096_tokens)->Unit(benchmark::kMicrosecond);

void evict_one_block(benchmark::State& state) {
  FullTree full;
  for (auto _ : state) {
    if (full.pool().free_count() == kNodes) {
      state.PauseTiming();
      full.fill();
      state.ResumeTiming();
    }
    CHECK(full.tree().evict_one(0));
  }
}
BENCHMARK(evict_one_block)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
