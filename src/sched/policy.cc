#include "sched/policy.h"

#include <algorithm>
#include <limits>
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

int blocks_to_spare(const AdmissionView& view, int group_count) {
  int64_t spare = std::numeric_limits<int>::max();
  for (size_t g = 0; g < static_cast<size_t>(group_count); ++g)
    spare = std::min(spare, int64_t{view.available[g]} - view.promised[g] - view.wanted[g]);
  return static_cast<int>(std::max<int64_t>(spare, std::numeric_limits<int>::min()));
}

}  // namespace quire
