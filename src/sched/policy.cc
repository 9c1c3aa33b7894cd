#include "sched/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>

#include "base/checked.h"

namespace quire {
namespace {

// a is the better victim. Ratios are compared by cross products: exact, and no block freed is infinitely
// dear.
bool is_better_victim(const VictimCandidate& a, const VictimCandidate& b) {
  const bool a_protected = a.preemptions >= kPreemptionsFree, b_protected = b.preemptions >= kPreemptionsFree;
  if (a_protected != b_protected) return b_protected;
  if (a.priority != b.priority) return a.priority < b.priority;
  if ((a.blocks_freed > 0) != (b.blocks_freed > 0)) return a.blocks_freed > 0;
  const int64_t a_cost = int64_t{a.recompute_tokens} * b.blocks_freed;
  const int64_t b_cost = int64_t{b.recompute_tokens} * a.blocks_freed;
  if (a_cost != b_cost) return a_cost < b_cost;
  return a.arrival > b.arrival;
}

}  // namespace

QueuePlace queue_place(const Arrival& arrival) {
  const int priority = std::clamp(arrival.priority, -kPriorityMax, kPriorityMax);
  return {.virtual_arrival = arrival.step - priority * kAgeingSteps, .arrival = arrival.order};
}

std::vector<size_t> admission_order(std::span<const AdmissionCandidate> candidates) {
  const auto place_of = [&](size_t i) {
    QueuePlace place = candidates[i].place;
    place.virtual_arrival -=
        std::min<int64_t>(candidates[i].cached_tokens / kCachedTokensPerStep, kCachedStepsMax);
    return place;
  };
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, place_of);
  return order;
}

StepPace learn_pace(const StepPace& pace, const StepTime& step) {
  constexpr double kUp = 0.5, kDown = 0.1;
  const auto follow = [](double old, double seen) {
    return old == 0 ? seen : old + (seen > old ? kUp : kDown) * (seen - old);
  };
  if (!(step.ms > 0) || !std::isfinite(step.ms)) return pace;
  StepPace next = pace;
  if (step.prefill_rows > 0) {
    next.prefill_row_ms =
        follow(pace.prefill_row_ms, std::max(0.0, step.ms - pace.decode_ms) / step.prefill_rows);
    next.prefill_rows_seen = std::max(pace.prefill_rows_seen, step.prefill_rows);
  } else if (step.decode_rows > 0) {
    next.decode_ms = follow(pace.decode_ms, step.ms);
  }
  return next;
}

double predict_step_ms(const StepPace& pace, int prefill_rows) {
  return pace.decode_ms + pace.prefill_row_ms * prefill_rows;
}

int prefill_rows_allowed(const StepPace& pace, const PrefillDemand& demand) {
  const int rows_max = std::max(0, demand.rows_max);
  if (demand.itl_target_ms <= 0 || demand.decode_rows == 0) return rows_max;
  // Durations are not extrapolated far beyond what was measured.
  const int64_t known = std::max<int64_t>(kPrefillRowsFirst, int64_t{2} * pace.prefill_rows_seen);
  double rows = static_cast<double>(known);
  if (pace.prefill_row_ms > 0)
    rows = std::min(rows, (demand.itl_target_ms - pace.decode_ms) / pace.prefill_row_ms);
  const int allowed = static_cast<int>(
      std::clamp<double>(rows, kPrefillRowsGuaranteed, rows_max + 1.0 * kPrefillRowsGuaranteed));
  return std::min(allowed, rows_max);
}

std::vector<int> share_prefill_budget(PrefillBudget budget, std::span<const int> wanted) {
  std::vector<int> shares(wanted.size(), 0);
  int left = std::max(0, budget.rows);
  for (size_t i = 0; i < wanted.size() && left > 0; ++i) {
    shares[i] = std::min({wanted[i], std::max(1, budget.share_min), left});
    left -= shares[i];
  }
  // Rounds of equal parts: each satisfies somebody or spends the budget.
  while (left > 0) {
    const auto hungry = static_cast<int>(std::ranges::count_if(
        std::views::iota(size_t{0}, wanted.size()), [&](size_t i) { return shares[i] < wanted[i]; }));
    if (hungry == 0) break;
    const int part = std::max(1, left / hungry);
    for (size_t i = 0; i < wanted.size() && left > 0; ++i) {
      const int more = std::min({wanted[i] - shares[i], part, left});
      shares[i] += more;
      left -= more;
    }
  }
  return shares;
}

std::optional<size_t> choose_victim(std::span<const VictimCandidate> candidates) {
  if (candidates.empty()) return std::nullopt;
  return static_cast<size_t>(std::ranges::min_element(candidates, is_better_victim) - candidates.begin());
}

BlockCounts peak_blocks(const KvGeometry& geometry, int64_t tokens) {
  BlockCounts peak{};
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const int64_t block_tokens = geometry.block_tokens;
    int64_t blocks = ceil_div(tokens, block_tokens);
    // `window` positions in a row touch at most this many blocks.
    const int64_t window = geometry.groups[g].window;
    if (window > 0) blocks = std::min(blocks, ceil_div(window - 1, block_tokens) + 1);
    peak[g] = static_cast<int>(std::min<int64_t>(blocks, std::numeric_limits<int>::max()));
  }
  return peak;
}

BlockCounts group_peak_blocks(const KvGeometry& geometry, const GroupDemand& demand) {
  const BlockCounts alone = peak_blocks(geometry, demand.tokens);
  const int64_t all = ceil_div(demand.tokens, int64_t{geometry.block_tokens});
  const int64_t shared = demand.prompt_tokens / geometry.block_tokens;
  BlockCounts peak{};
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    int64_t blocks = int64_t{demand.sequences} * alone[g];
    if (demand.policy == KvPolicy::kContiguous) {
      blocks = demand.sequences * all;
    } else if (demand.policy == KvPolicy::kRadix && demand.sequences > 1) {
      const int64_t with_shared = shared + demand.sequences * (all - shared + 1);
      blocks = geometry.groups[g].window > 0 ? std::min(with_shared, blocks) : with_shared;
    }
    peak[g] = static_cast<int>(std::min<int64_t>(blocks, std::numeric_limits<int>::max()));
  }
  return peak;
}

int blocks_to_spare(const AdmissionView& view, int group_count) {
  int64_t spare = std::numeric_limits<int>::max();
  for (size_t g = 0; g < static_cast<size_t>(group_count); ++g)
    spare = std::min(spare, int64_t{view.available[g]} - view.promised[g] - view.wanted[g]);
  return static_cast<int>(std::max<int64_t>(spare, std::numeric_limits<int>::min()));
}

}  // namespace quire
