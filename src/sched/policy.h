// The scheduler's choices, as functions of figures: no state, no effect.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_geometry.h"
#include "kv/block_table.h"
#include "sched/kv_policy.h"

namespace quire {

// A sequence that was preempted so often comes back only when it and all that run then fit to their very end,
// and is no victim from then on: preemptions of one sequence are bounded.
inline constexpr int kPreemptionsFree = 2;
// Priorities are clamped to ± this.
inline constexpr int kPriorityMax = 100;
// Steps of waiting that outweigh one step of priority: nobody waits for ever.
inline constexpr int64_t kAgeingSteps = 1000;
// Waiting groups of which a step weighs the cached prefix.
inline constexpr int kMatchesPerStep = 16;
// A cached prefix is a head start of one step per this many tokens, up to kCachedStepsMax.
inline constexpr int kCachedTokensPerStep = 64;
inline constexpr int64_t kCachedStepsMax = 32;
// Steps that a prompt waits, all in all, for others that compute its prefix.
inline constexpr int kLeaderWaitsMax = 256;
// Prefill rows of a step beside decodes: guaranteed whatever the pace, and tried before anything is measured.
inline constexpr int kPrefillRowsGuaranteed = 8;
inline constexpr int kPrefillRowsFirst = 32;
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

// Who of the first ones in the queue is admitted first: a cached prefix is a bounded head start, so that it
// may go idle no more before it is used, and nobody waits for ever.
struct AdmissionCandidate {
  QueuePlace place;
  int cached_tokens = 0;
};
// Indices of `candidates`, first to admit first.
[[nodiscard]] std::vector<size_t> admission_order(std::span<const AdmissionCandidate> candidates);

// What measured steps say of the next one's duration.
struct StepPace {
  double decode_ms = 0;       // of a step without prefill rows; 0 = none seen
  double prefill_row_ms = 0;  // what a prefill row adds; 0 = none seen
  int prefill_rows_seen = 0;  // most in one step
};
struct StepTime {
  int decode_rows = 0;
  int prefill_rows = 0;
  double ms = 0;
};
// Follows slowness at once and speed slowly, so that the stated gap is kept rather than used up.
[[nodiscard]] StepPace learn_pace(const StepPace& pace, const StepTime& step);
[[nodiscard]] double predict_step_ms(const StepPace& pace, int prefill_rows);

struct PrefillDemand {
  int decode_rows = 0;       // in the same step
  int rows_max = 0;          // what the step has left
  double itl_target_ms = 0;  // 0 = none
};
// Prefill rows that let running decodes keep their pace: all of rows_max when nobody decodes, else as many as
// the prediction allows, at most twice what was ever measured, and at least min(rows_max,
// kPrefillRowsGuaranteed).
[[nodiscard]] int prefill_rows_allowed(const StepPace& pace, const PrefillDemand& demand);

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

// The same for the `sequences` sequences of one request. Under kRadix they share the prompt's full blocks,
// and each has blocks of its own behind them and one that it may compute although another has it; under
// kPaged one that was preempted shares nothing when it comes back; under kContiguous a window frees nothing.
struct GroupDemand {
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;  // of the longest sequence
  int sequences = 1;
  KvPolicy policy = KvPolicy::kRadix;
};
[[nodiscard]] BlockCounts group_peak_blocks(const KvGeometry& geometry, const GroupDemand& demand);

// What admission weighs, per group.
struct AdmissionView {
  BlockCounts available{};  // free or idle, without those that the candidate's hit would pin
  BlockCounts promised{};   // further blocks that running sequences will lease
  BlockCounts wanted{};     // further blocks that the candidate will lease
};
// Blocks that stay to spare in the tightest group; negative: it does not fit.
[[nodiscard]] int blocks_to_spare(const AdmissionView& view, int group_count);

}  // namespace quire
