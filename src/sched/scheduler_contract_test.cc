// The scheduler's contract, point by point, where scheduler_test.cc and scheduler_fork_test.cc do not show
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sched/policy.h"
#include "sched/scheduler.h"
#include "sched/test_scheduler.h"

namespace quire {
namespace {

// Blocks of 4 tokens of full attention.
SchedulerOptions options_of(int blocks, int step_tokens_max) {
  return {.geometry = geometry_of(4, {0}),
          .block_counts = {blocks},
          .context_length = 40'000,
          .step_tokens_max = step_tokens_max,
          .running_sequences_max = std::min(16, step_tokens_max)};
}

// Sequence → rows of one step; token 7 is sampled for all.
std::map<uint64_t, int> run_step(Scheduler& scheduler) {
  const ScheduledStep step = scheduler.plan_step();
  std::map<uint64_t, int> rows;
  std::vector<SampledToken> sampled;
  for (const PlannedSequence& s : step.plan.sequences) rows[s.seq.value] = static_cast<int>(s.tokens.size());
  for (int index : step.completing)
    sampled.push_back({step.plan.sequences[static_cast<size_t>(index)].seq, 7});
  scheduler.commit_step(sampled);
  scheduler.audit();
  return rows;
}

SequenceState state_of(const Scheduler& scheduler, uint64_t seq) {
  return scheduler.figures({seq}).state;
}

// Point 1: the gap between a stream's tokens stays within the target while a prompt of 30,000 tokens comes
// in.
TEST(SchedulerContract, TheGapIsKeptWhileALongPromptComesIn) {
  constexpr double kTargetMs = 40, kDecodeMs = 8, kRowMs = 0.4;
  SchedulerOptions options = options_of(10'000, 512);
  options.itl_target_ms = static_cast<int>(kTargetMs);
  Scheduler scheduler(options);
  for (uint64_t seq = 1; seq <= 4; ++seq)
    scheduler.add({.seq = {seq}, .prompt = {static_cast<TokenId>(seq)}, .max_tokens = 5000});
  for (int i = 0; i < 5; ++i) {
    run_step(scheduler);
    scheduler.note_step_time({.decode_rows = 4, .prefill_rows = 0, .ms = kDecodeMs});
  }
  scheduler.add({.seq = {9}, .prompt = counting(30'000, 100), .max_tokens = 1});
  int steps = 0, prefilled = 0;
  double longest_ms = 0;
  for (; scheduler.figures({9}).generated_tokens == 0; ++steps) {
    ASSERT_LT(steps, 2000);
    std::map<uint64_t, int> rows = run_step(scheduler);
    for (uint64_t seq = 1; seq <= 4; ++seq) ASSERT_EQ(rows[seq], 1) << "step " << steps;
    prefilled += rows[9];
    const double ms = kDecodeMs + kRowMs * rows[9];
    longest_ms = std::max(longest_ms, ms);
    scheduler.note_step_time({.decode_rows = 4, .prefill_rows = rows[9], .ms = ms});
  }
  EXPECT_EQ(prefilled, 30'000);
  EXPECT_LE(longest_ms, kTargetMs);
  EXPECT_LT(steps, 30'000 / 70) << "the room that the target leaves is not used";
}

// Point 3: a prompt comes in when all of it fits and some growth with it, not when its first chunk does.
TEST(SchedulerContract, AdmissionWeighsTheWholePromptAndItsGrowth) {
  Scheduler scheduler(options_of(12, 8));
  scheduler.add({.seq = {1}, .prompt = counting(24, 0), .max_tokens = 9});  // 8 blocks at its end
  run_step(scheduler);
  scheduler.add({.seq = {2}, .prompt = counting(16, 500), .max_tokens = 5});  // its first chunk would fit
  for (int i = 0; i < 4; ++i) {
    run_step(scheduler);
    EXPECT_EQ(state_of(scheduler, 2), SequenceState::kWaiting);
  }
  scheduler.finish({1});
  run_step(scheduler);
  EXPECT_EQ(state_of(scheduler, 2), SequenceState::kPrefilling);
}

// Point 3: what the cache has need not fit again, and is not evicted for the one that it is for.
TEST(SchedulerContract, AHitIsWeighedAndKeptForWhoItIsFor) {
  Scheduler scheduler(options_of(12, 64));
  scheduler.add({.seq = {1}, .prompt = counting(32, 0), .max_tokens = 1});
  run_step(scheduler);
  scheduler.finish({1});
  ASSERT_EQ(scheduler.pool(0).idle_count(), 8);
  scheduler.add({.seq = {2}, .prompt = counting(8, 900), .max_tokens = 4});
  run_step(scheduler);
  Tokens longer = counting(32, 0);
  longer.push_back(77);
  scheduler.add({.seq = {3}, .prompt = longer, .max_tokens = 2});
  EXPECT_EQ(run_step(scheduler).at(3), 1);
  EXPECT_EQ(scheduler.figures({3}).cached_tokens, 32);
  EXPECT_EQ(state_of(scheduler, 2), SequenceState::kDecoding);
}

// Point 4: lowest priority first, though it be older than others.
TEST(SchedulerContract, TheVictimHasTheLowestPriority) {
  Scheduler scheduler(options_of(12, 16));
  scheduler.add({.seq = {1}, .prompt = counting(2, 100), .max_tokens = 30, .priority = 0});
  scheduler.add({.seq = {2}, .prompt = counting(2, 200), .max_tokens = 30, .priority = 0});
  run_step(scheduler);
  scheduler.add({.seq = {3}, .prompt = counting(2, 300), .max_tokens = 30, .priority = 5});
  run_step(scheduler);
  for (uint64_t seq : {1, 2, 3}) ASSERT_EQ(state_of(scheduler, seq), SequenceState::kDecoding);
  while (scheduler.figures({1}).generated_tokens < 30 && scheduler.kv_accounting().preemptions == 0)
    run_step(scheduler);
  EXPECT_EQ(state_of(scheduler, 2), SequenceState::kPreempted);
  EXPECT_EQ(scheduler.figures({3}).preemptions, 0);
}

// Point 4: sealed blocks of a victim stay in the tree, so that coming back is mostly a hit.
TEST(SchedulerContract, AVictimComesBackToItsOwnBlocks) {
  Scheduler scheduler(options_of(12, 64));
  scheduler.add({.seq = {1}, .prompt = counting(4, 100), .max_tokens = 21});
  scheduler.add({.seq = {2}, .prompt = counting(19, 200), .max_tokens = 21});
  while (scheduler.figures({2}).preemptions == 0) run_step(scheduler);
  EXPECT_EQ(scheduler.figures({2}).blocks_used, 0);
  const int known = static_cast<int>(scheduler.tokens({2}).size());
  scheduler.finish({1});
  const int computed = run_step(scheduler).at(2);
  EXPECT_LT(computed, known / 2);
  EXPECT_EQ(scheduler.figures({2}).computed_tokens, known);
}

// Point 5: a higher priority is admitted first, and ageing brings the lower one in before it starves.
TEST(SchedulerContract, PrioritiesGoFirstButNobodyStarves) {
  SchedulerOptions options = options_of(16, 4);
  options.running_sequences_max = 1;
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = {1}, .max_tokens = 1, .priority = 0});
  scheduler.add({.seq = {2}, .prompt = {2}, .max_tokens = 1, .priority = 1});
  EXPECT_EQ(run_step(scheduler).begin()->first, 2u);
  scheduler.finish({2});
  // One of higher priority arrives in each step.
  uint64_t seq = 10;
  int64_t steps = 0;
  for (bool served = false; !served; ++steps) {
    ASSERT_LE(steps, 2 * kAgeingSteps);
    scheduler.add({.seq = {seq}, .prompt = {3}, .max_tokens = 1, .priority = 1});
    const uint64_t first = run_step(scheduler).begin()->first;
    served = first == 1;
    scheduler.finish({first});
    ++seq;
  }
  EXPECT_GT(steps, kAgeingSteps / 2);
}

// Point 5: of those that wait, one whose prefix is cached goes first, within bounds.
TEST(SchedulerContract, ACachedPrefixIsAHeadStart) {
  SchedulerOptions options = options_of(64, 256);
  options.running_sequences_max = 1;
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = counting(128, 0), .max_tokens = 1});
  run_step(scheduler);
  scheduler.finish({1});
  scheduler.add({.seq = {2}, .prompt = counting(20, 5000), .max_tokens = 1});
  scheduler.add({.seq = {3}, .prompt = counting(129, 0), .max_tokens = 1});
  EXPECT_EQ(run_step(scheduler).begin()->first, 3u);
  scheduler.finish({3});
  EXPECT_EQ(run_step(scheduler).begin()->first, 2u);
}

// Cancel: blocks are back before the next step, also of one that was preempted.
TEST(SchedulerContract, APreemptedOneIsCancelledWithinTheStep) {
  Scheduler scheduler(options_of(6, 16));
  for (uint64_t seq : {1, 2})
    scheduler.add({.seq = {seq}, .prompt = counting(2, static_cast<TokenId>(100 * seq)), .max_tokens = 18});
  while (scheduler.figures({2}).preemptions == 0) run_step(scheduler);
  ASSERT_EQ(state_of(scheduler, 2), SequenceState::kPreempted);
  scheduler.finish({2});
  EXPECT_EQ(scheduler.waiting_count(), 0);
  scheduler.audit();
  scheduler.finish({1});
  EXPECT_EQ(scheduler.pool(0).open_count() + scheduler.pool(0).pinned_count(), 0);
  EXPECT_TRUE(scheduler.plan_step().empty());
  scheduler.abandon_step();
}

}  // namespace
}  // namespace quire
