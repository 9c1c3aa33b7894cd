#include "tests/sim/world.h"

#include <algorithm>
#include <random>

namespace quire::sim {

const std::vector<World>& named_worlds() {
  static const std::vector<World> worlds = {
      {{0}, 4, {64}, 32, 16, 1, 0, 3},        // roomy
      {{0}, 4, {16}, 16, 8, 1, 0, 2},         // preempts
      {{0}, 2, {31}, 7, 7, 1, 0, 3},          // odd sizes
      {{0}, 2, {30}, 16, 12, 1, 0, 6},        // preempts often
      {{0}, 4, {17}, 1, 1, 1, 0, 1},          // one row a step
      {{0}, 8, {8}, 24, 8, 3, 0, 2},          // eight blocks, priorities
      {{0}, 4, {80}, 48, 24, 2, 12, 8},       // a stated pace, bursts
      {{0, 9}, 4, {24, 20}, 16, 8, 1, 0, 3},  // full and window
      {{6, 0}, 2, {12, 32}, 16, 8, 2, 0, 2},  // a tight window pool
      {{5, 12}, 4, {9, 14}, 12, 6, 1, 8, 2},  // windows only
      {{1, 0}, 4, {4, 16}, 16, 8, 1, 0, 2},   // a window of the token itself
      {{0}, 1, {60}, 32, 24, 1, 0, 8},        // blocks of one token: grows past what was foreseen
      {{0}, 2, {26}, 16, 12, 3, 0, 8},        // the same with priorities
      {{0, 12}, 1, {50, 60}, 16, 12, 1, 0, 6},
      {{0, 0, 16, 3}, 4, {24, 22, 26, 9}, 20, 8, 2, 0, 3},
      {{0}, 4, {24}, 16, 8, 2, 0, 4, 8},          // a third of the pool may be pinned
      {{0, 7}, 2, {30, 20}, 16, 8, 1, 0, 4, 10},  // the same with a window
      {{0}, 4, {20}, 16, 8, 1, 0, 4, 0, KvPolicy::kPaged},
      {{0, 9}, 2, {30, 30}, 16, 8, 2, 0, 4, 0, KvPolicy::kPaged},
      {{0}, 4, {24}, 16, 8, 1, 0, 4, 0, KvPolicy::kContiguous},
      {{0, 9}, 2, {40, 40}, 16, 8, 3, 0, 4, 0, KvPolicy::kContiguous},
      {{0}, 4, {24}, 16, 8, 2, 0, 8, 0, KvPolicy::kRadix, 5},  // a full inbox
  };
  return worlds;
}

World random_world(uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  World world;
  world.block_tokens = between(1, 8);
  const int groups = between(1, 3);
  for (int g = 0; g < groups; ++g) {
    world.windows.push_back(between(0, 2) > 0 ? 0 : between(1, 24));
    world.block_counts.push_back(between(8, 64));
  }
  world.step_tokens_max = between(1, 40);
  world.running_sequences_max = between(1, 16);
  world.priorities = between(1, 3);
  world.itl_target_ms = between(0, 2) == 0 ? between(2, 30) : 0;
  world.requests_per_beat = between(1, 8);
  if (between(0, 2) == 0)
    world.pinned_blocks_max = between(0, *std::ranges::min_element(world.block_counts) / 2);
  if (between(0, 3) == 0) world.kv_policy = static_cast<KvPolicy>(between(0, 1));
  world.inbox_requests_max = between(0, 3) == 0 ? between(1, 10) : 200;
  return world;
}

SchedulerOptions options_of(const World& world) {
  KvGeometry geometry{.block_tokens = world.block_tokens, .type = KvType::kF32, .groups = {}};
  for (int window : world.windows) {
    const int layer = static_cast<int>(geometry.groups.size());
    geometry.groups.push_back(
        {.layers = {layer}, .kv_heads = 1, .key_dim = 2, .value_dim = 2, .window = window});
  }
  return {.geometry = geometry,
          .block_counts = world.block_counts,
          .context_length = 60,
          .step_tokens_max = world.step_tokens_max,
          .running_sequences_max = world.running_sequences_max,
          .itl_target_ms = world.itl_target_ms,
          .kv_policy = world.kv_policy,
          .pinned_blocks_max = world.pinned_blocks_max};
}

}  // namespace quire::sim
