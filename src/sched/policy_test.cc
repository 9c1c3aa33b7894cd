#include "sched/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

KvGeometry geometry_of(int block_tokens, const std::vector<int>& windows) {
  KvGeometry geometry{.block_tokens = block_tokens, .type = KvType::kF32, .groups = {}};
  for (int window : windows)
    geometry.groups.push_back({.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
  return geometry;
}

TEST(QueuePlace, FirstComeFirstServedWithinAPriority) {
  EXPECT_LT(queue_place({.step = 5, .order = 1}), queue_place({.step = 5, .order = 2}));
  EXPECT_LT(queue_place({.step = 4, .order = 1}), queue_place({.step = 5, .order = 2}));
}

TEST(QueuePlace, PriorityGoesFirstButWaitingOutweighsIt) {
  EXPECT_LT(queue_place({.step = 10, .priority = 1, .order = 2}), queue_place({.step = 5, .order = 1}));
  EXPECT_GT(queue_place({.step = 10 + kAgeingSteps, .priority = 1, .order = 2}),
            queue_place({.step = 5, .order = 1}));
}

TEST(QueuePlace, AbsurdPrioritiesAreClamped) {
  const QueuePlace high = queue_place({.step = 0, .priority = std::numeric_limits<int>::max(), .order = 1});
  const QueuePlace low = queue_place({.step = 0, .priority = std::numeric_limits<int>::min(), .order = 2});
  EXPECT_LT(high, low);
  EXPECT_EQ(low.virtual_arrival - high.virtual_arrival, 2 * kPriorityMax * kAgeingSteps);
}

TEST(PrefillBudget, IsSharedFairlyAndSpent) {
  EXPECT_EQ(share_prefill_budget({.rows = 90}, std::vector{100, 100, 100}), (std::vector{30, 30, 30}));
  EXPECT_EQ(share_prefill_budget({.rows = 90}, std::vector{10, 100, 100}), (std::vector{10, 40, 40}));
  EXPECT_EQ(share_prefill_budget({.rows = 500}, std::vector{10, 100}), (std::vector{10, 100}));
  EXPECT_EQ(share_prefill_budget({.rows = 0}, std::vector{10, 100}), (std::vector{0, 0}));
  EXPECT_EQ(share_prefill_budget({.rows = 40, .share_min = 32}, std::vector{100, 100}), (std::vector{32, 8}));
}

TEST(PrefillBudget, KeepsItsPromisesForRandomDemands) {
  std::mt19937 rng(1);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng); };
  for (int round = 0; round < 2000; ++round) {
    const PrefillBudget budget{.rows = below(300), .share_min = 1 + below(40)};
    std::vector<int> wanted(static_cast<size_t>(1 + below(20)));
    for (int& w : wanted) w = 1 + below(200);
    const std::vector<int> shares = share_prefill_budget(budget, wanted);
    const int sum = std::accumulate(shares.begin(), shares.end(), 0);
    ASSERT_EQ(sum, std::min(budget.rows, std::accumulate(wanted.begin(), wanted.end(), 0)));
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_LE(shares[i], wanted[i]);
      // Nobody beyond the minimum takes rows from one who wants more, but for the remainder of a division.
      for (size_t j = 0; j < wanted.size(); ++j) {
        if (shares[j] < wanted[j] && shares[i] > budget.share_min) {
          ASSERT_LE(shares[i], std::max(shares[j], budget.share_min) + 1 + (j < i ? 0 : budget.share_min));
        }
      }
    }
    if (budget.rows > 0) {
      ASSERT_GE(shares[0], 1);
    }
  }
}

TEST(Victim, NobodyToChoose) {
  EXPECT_FALSE(choose_victim({}));
}

TEST(Victim, LowestPriorityThenLeastRecomputePerBlockThenYoungest) {
  const VictimCandidate cheap{.priority = 1, .arrival = 1, .recompute_tokens = 10, .blocks_freed = 10};
  const VictimCandidate dear{.priority = 0, .arrival = 2, .recompute_tokens = 100, .blocks_freed = 1};
  EXPECT_EQ(choose_victim(std::vector{cheap, dear}), 1u);
  const VictimCandidate small{.arrival = 1, .recompute_tokens = 64, .blocks_freed = 2};
  const VictimCandidate large{.arrival = 2, .recompute_tokens = 300, .blocks_freed = 9};
  EXPECT_EQ(choose_victim(std::vector{small, large}), 0u);
  const VictimCandidate shared{.arrival = 3, .recompute_tokens = 1, .blocks_freed = 0};
  EXPECT_EQ(choose_victim(std::vector{shared, large}), 1u);
  const VictimCandidate younger{.arrival = 9, .recompute_tokens = 32, .blocks_freed = 1};
  EXPECT_EQ(choose_victim(std::vector{small, younger}), 1u);
}

TEST(Victim, ThoseWithoutPreemptionsLeftComeLast) {
  const VictimCandidate spent{
      .priority = -5, .recompute_tokens = 1, .blocks_freed = 9, .preemptions = kPreemptionsFree};
  const VictimCandidate fresh{.priority = 5, .recompute_tokens = 900, .blocks_freed = 1};
  EXPECT_EQ(choose_victim(std::vector{spent, fresh}), 1u);
  EXPECT_EQ(choose_victim(std::vector{spent}), 0u);
}

TEST(PeakBlocks, AgreesWithCountingTouchedBlocks) {
  for (int block_tokens : {1, 2, 3, 8}) {
    for (int window : {0, 1, 2, 3, 7, 8, 9, 20}) {
      for (int tokens = 1; tokens <= 60; ++tokens) {
        size_t most = 0;
        for (int query = 0; query < tokens; ++query) {
          std::set<int> touched;
          for (int p = window == 0 ? 0 : std::max(0, query - window + 1); p <= query; ++p)
            touched.insert(p / block_tokens);
          most = std::max(most, touched.size());
        }
        const int peak = peak_blocks(geometry_of(block_tokens, {window}), tokens)[0];
        ASSERT_GE(peak, static_cast<int>(most)) << block_tokens << " " << window << " " << tokens;
        // Tight once the window has moved over every alignment.
        if (tokens >= window + 2 * block_tokens) {
          ASSERT_EQ(peak, static_cast<int>(most)) << block_tokens << " " << window << " " << tokens;
        }
      }
    }
  }
}

TEST(PeakBlocks, DoesNotOverflow) {
  const BlockCounts peak = peak_blocks(geometry_of(1, {0}), int64_t{1} << 40);
  EXPECT_EQ(peak[0], std::numeric_limits<int>::max());
}

TEST(AdmissionOrder, ACachedPrefixIsABoundedHeadStart) {
  const auto candidate = [](int64_t step, uint64_t order, int cached) {
    return AdmissionCandidate{.place = queue_place({.step = step, .order = order}), .cached_tokens = cached};
  };
  using Order = std::vector<size_t>;
  EXPECT_EQ(admission_order({}), Order{});
  EXPECT_EQ(admission_order(std::vector{candidate(5, 1, 0), candidate(5, 2, 0)}), (Order{0, 1}));
  EXPECT_EQ(admission_order(std::vector{candidate(5, 1, 0), candidate(5, 2, 640)}), (Order{1, 0}));
  EXPECT_EQ(admission_order(std::vector{candidate(5, 1, 64), candidate(5, 2, 640), candidate(5, 3, 320)}),
            (Order{1, 2, 0}));
  EXPECT_EQ(admission_order(std::vector{candidate(5, 1, 0), candidate(5 + kCachedStepsMax, 2, 1 << 30)}),
            (Order{0, 1}));
  const AdmissionCandidate low{.place = queue_place({.step = 0, .order = 1}), .cached_tokens = 1 << 20};
  const AdmissionCandidate high{.place = queue_place({.step = 0, .priority = 1, .order = 2})};
  EXPECT_EQ(admission_order(std::vector{low, high}), (Order{1, 0}));
}

TEST(StepPace, LearnsWhatStepsCost) {
  StepPace pace;
  EXPECT_EQ(predict_step_ms(pace, 100), 0);
  pace = learn_pace(pace, {.decode_rows = 4, .prefill_rows = 0, .ms = 8});
  EXPECT_DOUBLE_EQ(predict_step_ms(pace, 0), 8);
  pace = learn_pace(pace, {.decode_rows = 4, .prefill_rows = 10, .ms = 13});
  EXPECT_DOUBLE_EQ(predict_step_ms(pace, 20), 18);
  const StepPace same = learn_pace(pace, {.decode_rows = 4, .prefill_rows = 10, .ms = -1});
  EXPECT_DOUBLE_EQ(predict_step_ms(same, 20), 18);
  // Slower at once, faster slowly.
  const StepPace slower = learn_pace(pace, {.decode_rows = 4, .prefill_rows = 0, .ms = 16});
  const StepPace faster = learn_pace(pace, {.decode_rows = 4, .prefill_rows = 0, .ms = 4});
  EXPECT_GT(slower.decode_ms - pace.decode_ms, 2 * (pace.decode_ms - faster.decode_ms));
  for (int i = 0; i < 200; ++i) pace = learn_pace(pace, {.decode_rows = 1, .prefill_rows = 0, .ms = 2});
  EXPECT_NEAR(pace.decode_ms, 2, 0.01);
}

TEST(StepPace, PrefillsGetWhatTheGapLeavesAndNeverNothing) {
  const StepPace pace{.decode_ms = 4, .prefill_row_ms = 0.5, .prefill_rows_seen = 100};
  const auto allowed = [&](int decodes, int rows, double target) {
    return prefill_rows_allowed(pace, {.decode_rows = decodes, .rows_max = rows, .itl_target_ms = target});
  };
  EXPECT_EQ(allowed(3, 500, 0), 500);   // no target
  EXPECT_EQ(allowed(0, 500, 10), 500);  // nobody waits
  EXPECT_EQ(allowed(3, 500, 20), 32);
  EXPECT_EQ(allowed(3, 20, 20), 20);
  EXPECT_EQ(allowed(3, 500, 4), kPrefillRowsGuaranteed);
  EXPECT_EQ(allowed(3, 500, 1), kPrefillRowsGuaranteed);
  EXPECT_EQ(allowed(3, 2, 1), 2);
  EXPECT_EQ(allowed(3, 0, 20), 0);
  EXPECT_EQ(allowed(3, 5000, 1e6), 200) << "not far beyond what was measured";
  EXPECT_EQ(prefill_rows_allowed({}, {.decode_rows = 1, .rows_max = 500, .itl_target_ms = 5}),
            kPrefillRowsFirst);
}

TEST(GroupPeakBlocks, CountsThePromptOnce) {
  for (int block_tokens : {1, 3, 8}) {
    const KvGeometry geometry = geometry_of(block_tokens, {0, 5});
    for (int prompt = 1; prompt < 30; ++prompt) {
      for (int length = prompt; length < 40; ++length) {
        EXPECT_EQ(group_peak_blocks(geometry, {.prompt_tokens = prompt, .tokens = length}),
                  peak_blocks(geometry, length));
        std::set<int> shared, all;
        for (int p = 0; p < length; ++p) {
          all.insert(p / block_tokens);
          if ((p / block_tokens + 1) * block_tokens <= prompt) shared.insert(p / block_tokens);
        }
        const auto own = static_cast<int>(all.size() - shared.size());
        const BlockCounts peak =
            group_peak_blocks(geometry, {.prompt_tokens = prompt, .tokens = length, .sequences = 3});
        EXPECT_EQ(peak[0], static_cast<int>(shared.size()) + 3 * (own + 1));
        EXPECT_LE(peak[1], 3 * peak_blocks(geometry, length)[1]);
        EXPECT_LE(peak[1], peak[0]);
      }
    }
  }
}

TEST(BlocksToSpare, TheTightestGroupDecides) {
  const AdmissionView view{.available = {10, 4}, .promised = {2, 1}, .wanted = {3, 4}};
  EXPECT_EQ(blocks_to_spare(view, 1), 5);
  EXPECT_EQ(blocks_to_spare(view, 2), -1);
}

}  // namespace
}  // namespace quire
