// An engine's surroundings in a simulation: pools, limits and who comes.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/scheduler.h"

namespace quire::sim {

struct World {
  std::vector<int> windows;  // [group]; 0 = full attention
  int block_tokens = 4;
  std::vector<int> block_counts;  // [group]
  int step_tokens_max = 16;
  int running_sequences_max = 8;
  int priorities = 1;         // distinct ones
  int itl_target_ms = 0;      // 0 = none
  int requests_per_beat = 3;  // most that arrive at once
  int pinned_blocks_max = 0;
  KvPolicy kv_policy = KvPolicy::kRadix;
  int inbox_requests_max = 200;
};

// Worlds that were made to hurt: eight blocks, one row a step, tight windows, blocks of odd sizes.
[[nodiscard]] const std::vector<World>& named_worlds();
// Any other one.
[[nodiscard]] World random_world(uint64_t seed);

[[nodiscard]] SchedulerOptions options_of(const World& world);

}  // namespace quire::sim
