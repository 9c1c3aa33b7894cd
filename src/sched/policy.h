// The scheduler's choices, as functions of figures: no state, no effect.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_geometry.h"
#include "kv/block_table.h"

namespace quire {

// A sequence that was preempted so often comes back only when it and all that run then fit to their very end,
// and is no victim from then on: preemptions of one sequence are bounded.
inline constexpr int kPreemptionsFree = 2;
// Priorities are clamped to ± this.
inline constexpr int kPriorityMax = 100;
// Steps of waiting that outweigh one step of priority: nobody waits for ever.
inline constexpr int64_t kAgeingSteps = 1000;
// Tokens, in blocks, that admission expects each sequence to generate soon.
inline constexpr int kGrowthBlocks = 2;

// A sequence's place in the queue, fixed when it arrives. All who wait age alike, so that the order of two
// never changes: a point of priority is a head start of kAgeingSteps.
struct QueuePlace {
  int64_t virtual_arrival = 0;
  uint64_t arrival = 0;  // order of add(); unique
  auto operator<=>(const QueuePlace&) const = default;
};
struct Arrival {
  int64_t step = 0;
  int priority = 0;
  uint64_t order = 0;
};
[[nodiscard]] QueuePlace queue_place(const Arrival& arrival);

// Shares `budget` rows among prefills that want `wanted` (>= 1) rows each, oldest first: max-min fair, but a
// share is at least min(wanted, share_min) as long as the budget lasts. Returns [prefill] rows; sum <=
// budget; the first gets at least one when budget >= 1.
struct PrefillBudget {
  int rows = 0;
  int share_min = 1;
};
[[nodiscard]] std::vector<int> share_prefill_budget(PrefillBudget budget, std::span<const int> wanted);

struct VictimCandidate {
  int priority = 0;
  uint64_t arrival = 0;
  int recompute_tokens = 0;  // what it loses
  int blocks_freed = 0;      // in the group that lacks blocks
  int preemptions = 0;
};
// Those with preemptions left before those without; then lowest priority, then least recompute per block
// freed, then the youngest. nullopt when there is no candidate. The caller leaves the oldest running one out.
[[nodiscard]] std::optional<size_t> choose_victim(std::span<const VictimCandidate> candidates);

// Most blocks that a sequence holds in each group until `tokens` positions are written, when it writes one
// position at a time.
[[nodiscard]] BlockCounts peak_blocks(const KvGeometry& geometry, int64_t tokens);

// What admission weighs, per group.
struct AdmissionView {
  BlockCounts available{};  // free or idle, without those that the candidate's hit would pin
  BlockCounts promised{};   // further blocks that running sequences will lease
  BlockCounts wanted{};     // further blocks that the candidate will lease
};
// Blocks that stay to spare in the tightest group; negative: it does not fit.
[[nodiscard]] int blocks_to_spare(const AdmissionView& view, int group_count);

}  // namespace quire
