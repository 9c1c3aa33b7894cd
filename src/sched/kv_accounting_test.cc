#include "sched/kv_accounting.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sched/policy.h"
#include "sched/scheduler.h"
#include "sched/test_scheduler.h"

namespace quire {
namespace {

// Blocks of 4 tokens in one pool of full attention.
SchedulerOptions options_of(KvPolicy policy, int blocks) {
  return {.geometry = geometry_of(4, {0}),
          .block_counts = {blocks},
          .context_length = 256,
          .step_tokens_max = 32,
          .running_sequences_max = 16,
          .kv_policy = policy};
}

void run_step(Scheduler& scheduler) {
  const ScheduledStep step = scheduler.plan_step();
  std::vector<SampledToken> sampled;
  for (int index : step.completing)
    sampled.push_back({step.plan.sequences[static_cast<size_t>(index)].seq, 7});
  scheduler.commit_step(sampled);
  scheduler.audit();
}

TEST(KvPolicy, NamesGoBothWays) {
  for (KvPolicy policy : {KvPolicy::kContiguous, KvPolicy::kPaged, KvPolicy::kRadix})
    EXPECT_EQ(kv_policy_from_name(kv_policy_name(policy)), policy);
  EXPECT_EQ(kv_policy_name(KvPolicy::kContiguous), "contiguous");
  EXPECT_FALSE(kv_policy_from_name("buddy"));
  EXPECT_FALSE(kv_policy_from_name(""));
}

TEST(KvAccounting, ContiguousHoldsTheLongestAnswerFromTheStart) {
  Scheduler scheduler(options_of(KvPolicy::kContiguous, 16));
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 30});
  run_step(scheduler);
  const KvUse use = scheduler.kv_accounting().now[0];
  EXPECT_EQ(use.blocks_held, 9);  // 6 + 29 positions
  EXPECT_EQ(use.slots_held, 36);
  EXPECT_EQ(use.slots_written, 6);
  EXPECT_EQ(use.slots_internal_waste(), 30);
  EXPECT_EQ(use.slots_external_waste, 0);
  // One range: consecutive ids.
  const ScheduledStep step = scheduler.plan_step();
  const auto ids = step.plan.sequences.at(0).block_table[0];
  ASSERT_EQ(ids.size(), 9u);
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(ids[i].value, ids[i - 1].value + 1);
  scheduler.abandon_step();
  scheduler.audit();
  EXPECT_EQ(scheduler.kv_accounting().now[0].blocks_held, 9);
  scheduler.finish({1});
  EXPECT_EQ(scheduler.kv_accounting().now[0].blocks_held, 0);
  EXPECT_EQ(scheduler.pool(0).free_count(), 16);
}

TEST(KvAccounting, AHoleThatNoRangeFitsIsExternalWaste) {
  Scheduler scheduler(options_of(KvPolicy::kContiguous, 12));
  for (uint64_t seq : {1, 2, 3}) scheduler.add({.seq = {seq}, .prompt = counting(4), .max_tokens = 13});
  run_step(scheduler);
  EXPECT_EQ(scheduler.pool(0).free_count(), 0);
  scheduler.finish({1});
  scheduler.finish({3});
  ASSERT_EQ(scheduler.pool(0).free_count(), 8);
  scheduler.add({.seq = {4}, .prompt = counting(4), .max_tokens = 25});  // 7 blocks: two holes of 4 do not do
  run_step(scheduler);
  EXPECT_EQ(scheduler.figures({4}).state, SequenceState::kWaiting);
  EXPECT_EQ(scheduler.kv_accounting().now[0].slots_external_waste, 32);
  scheduler.finish({2});
  run_step(scheduler);
  EXPECT_EQ(scheduler.figures({4}).state, SequenceState::kDecoding);
  EXPECT_EQ(scheduler.kv_accounting().now[0].slots_external_waste, 0);
}

TEST(KvAccounting, PagedHoldsWhatIsWrittenAndReusesNothing) {
  Scheduler scheduler(options_of(KvPolicy::kPaged, 16));
  scheduler.add({.seq = {1}, .prompt = counting(10), .max_tokens = 1});
  run_step(scheduler);
  EXPECT_EQ(scheduler.kv_accounting().now[0].slots_held, 12);
  EXPECT_EQ(scheduler.kv_accounting().now[0].slots_written, 10);
  scheduler.finish({1});
  EXPECT_EQ(scheduler.pool(0).free_count(), 16);
  scheduler.add({.seq = {2}, .prompt = counting(10), .max_tokens = 1});
  EXPECT_EQ(scheduler.plan_step().plan.row_count(), 10);
  scheduler.commit_step(std::vector<SampledToken>{{{2}, 7}});
  EXPECT_EQ(scheduler.kv_accounting().hit_tokens, 0);
  EXPECT_EQ(scheduler.kv_accounting().prompt_tokens, 20);
}

TEST(KvAccounting, RadixCountsHitsAndSharedBlocksOnce) {
  Scheduler scheduler(options_of(KvPolicy::kRadix, 32));
  scheduler.add({.seq = {1}, .prompt = counting(18), .max_tokens = 9});
  run_step(scheduler);
  scheduler.add({.seq = {2}, .prompt = counting(18), .max_tokens = 9});
  run_step(scheduler);
  const KvAccounting figures = scheduler.kv_accounting();
  EXPECT_EQ(figures.requests_admitted, 2);
  EXPECT_EQ(figures.prompt_tokens, 36);
  EXPECT_EQ(figures.hit_tokens, 16);
  EXPECT_EQ(figures.now[0].blocks_held, 4 + 2);
  EXPECT_EQ(figures.now[0].blocks_as_copies, 10);
  EXPECT_EQ(figures.now[0].slots_written, 16 + 3 + 2);  // the first has decoded one more
  EXPECT_EQ(figures.steps, 2);
  EXPECT_EQ(figures.running_sequences_sum, 3);
  EXPECT_EQ(figures.step_sums[0].blocks_held, 5 + 6);
}

TEST(KvAccounting, ATailThatForksShareIsWrittenOnce) {
  Scheduler scheduler(options_of(KvPolicy::kRadix, 32));
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 9, .sequences = 3});
  run_step(scheduler);
  scheduler.fork({.parent = {1}, .child = {2}, .token = 8});
  scheduler.fork({.parent = {1}, .child = {3}, .token = 9});
  const KvUse shared = scheduler.kv_accounting().now[0];
  EXPECT_EQ(shared.blocks_held, 2);
  EXPECT_EQ(shared.blocks_as_copies, 6);
  EXPECT_EQ(shared.slots_written, 6);
  run_step(scheduler);
  const KvAccounting apart = scheduler.kv_accounting();
  EXPECT_EQ(apart.copies, 2);
  EXPECT_EQ(apart.now[0].blocks_held, 1 + 3);
  EXPECT_EQ(apart.now[0].slots_written, 4 + 3 * 3);
}

TEST(KvAccounting, EvictionsAndPreemptionsAreCounted) {
  Scheduler scheduler(options_of(KvPolicy::kRadix, 6));
  for (uint64_t seq : {1, 2})
    scheduler.add({.seq = {seq}, .prompt = counting(2, static_cast<TokenId>(100 * seq)), .max_tokens = 18});
  while (scheduler.figures({1}).generated_tokens < 18) run_step(scheduler);
  EXPECT_EQ(scheduler.kv_accounting().preemptions, 1);
  EXPECT_GT(scheduler.kv_accounting().evictions, 0);
  EXPECT_EQ(scheduler.kv_accounting().requests_admitted, 2);
}

TEST(KvAccounting, ContiguousServesSingleSequencesOnly) {
  Scheduler scheduler(options_of(KvPolicy::kContiguous, 16));
  const auto answer =
      scheduler.check_admissible({.seq = {1}, .prompt = {1}, .max_tokens = 1, .sequences = 2});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().field, "n");
  EXPECT_NE(answer.error().message.find("contiguous"), std::string::npos);
}

// The same requests in the same memory: each idea lets more of them run.
TEST(KvAccounting, EachPolicyRunsMoreAtOnceThanTheOneBeforeIt) {
  std::vector<double> concurrency;
  for (KvPolicy policy : {KvPolicy::kContiguous, KvPolicy::kPaged, KvPolicy::kRadix}) {
    Scheduler scheduler(options_of(policy, 32));
    for (uint64_t seq = 1; seq <= 16; ++seq) {
      Tokens prompt = counting(24);
      prompt.push_back(static_cast<TokenId>(seq));
      scheduler.add({.seq = {seq}, .prompt = prompt, .max_tokens = 40});
    }
    int left = 16;
    while (left > 0) {
      run_step(scheduler);
      for (uint64_t seq = 1; seq <= 16; ++seq) {
        // Answers end long before their limit.
        if (!scheduler.contains({seq}) || scheduler.figures({seq}).generated_tokens < 12) continue;
        scheduler.finish({seq});
        --left;
      }
    }
    const KvAccounting figures = scheduler.kv_accounting();
    concurrency.push_back(static_cast<double>(figures.running_sequences_sum) /
                          static_cast<double>(figures.steps));
  }
  EXPECT_GT(concurrency[1], concurrency[0]);
  EXPECT_GT(concurrency[2], concurrency[1]);
}

}  // namespace
}  // namespace quire
