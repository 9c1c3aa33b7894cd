#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "sched/policy.h"
#include "sched/test_scheduler.h"

namespace quire {
namespace {

SchedulerOptions small_options() {
  return {.geometry = geometry_of(4, {0}),
          .block_counts = {16},
          .context_length = 64,
          .step_tokens_max = 16,
          .running_sequences_max = 8};
}

// Plans, samples token 7 for each completing sequence and commits; returns the plan's (seq, rows).
std::vector<std::pair<uint64_t, size_t>> run_step(Scheduler& scheduler) {
  const ScheduledStep step = scheduler.plan_step();
  std::vector<std::pair<uint64_t, size_t>> rows;
  std::vector<SampledToken> sampled;
  for (const PlannedSequence& s : step.plan.sequences) rows.emplace_back(s.seq.value, s.tokens.size());
  for (int index : step.completing)
    sampled.push_back({step.plan.sequences[static_cast<size_t>(index)].seq, 7});
  scheduler.commit_step(sampled);
  scheduler.audit();
  return rows;
}

using Rows = std::vector<std::pair<uint64_t, size_t>>;

TEST(Scheduler, NothingAliveIsAnEmptyStep) {
  Scheduler scheduler(small_options());
  EXPECT_TRUE(scheduler.plan_step().empty());
  scheduler.commit_step({});
}

TEST(Scheduler, OptionsAreRefusedWithNameValueAndLimits) {
  const auto refusal = [](auto change) {
    SchedulerOptions options = small_options();
    change(options);
    const auto answer = Scheduler::check_options(options);
    return answer ? Error{} : answer.error();
  };
  EXPECT_EQ(refusal([](SchedulerOptions&) {}).message, "");
  const Error rows = refusal([](SchedulerOptions& o) { o.step_tokens_max = 0; });
  EXPECT_EQ(rows.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rows.field, "step_tokens_max");
  EXPECT_EQ(rows.message, "step_tokens_max is 0, must be >= 1 and at most 1048576");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.block_counts = {0}; }).field, "kv_blocks");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.block_counts = {-3}; }).field, "kv_blocks");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.block_counts = {4, 4}; }).field, "block_counts");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.geometry.groups.clear(); }).field, "layer_groups");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.geometry.block_tokens = 0; }).field, "block_tokens");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.context_length = 0; }).field, "context_length");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.running_sequences_max = -1; }).field,
            "running_sequences_max");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.itl_target_ms = -1; }).field, "itl_target_ms");
  EXPECT_EQ(refusal([](SchedulerOptions& o) { o.itl_target_ms = 1 << 30; }).field, "itl_target_ms");
}

TEST(Scheduler, TheDoorRefusesAbsurdWidthsAndPriorities) {
  Scheduler scheduler(small_options());
  const auto refusal = [&](int sequences, int priority) {
    SequenceRequest request{.seq = {}, .prompt = counting(2), .max_tokens = 2, .priority = priority};
    request.sequences = sequences;
    const auto answer = scheduler.check_admissible(request);
    return answer ? Error{} : answer.error();
  };
  EXPECT_EQ(refusal(1, kPriorityMax).message, "");
  EXPECT_EQ(refusal(8, -kPriorityMax).message, "");
  EXPECT_EQ(refusal(0, 0).field, "n");
  EXPECT_EQ(refusal(-1, 0).field, "n");
  EXPECT_EQ(refusal(9, 0).message, "n is 9, must be >= 1 and at most 8");
  EXPECT_EQ(refusal(std::numeric_limits<int>::max(), 0).field, "n");
  EXPECT_EQ(refusal(1, kPriorityMax + 1).message, "priority is 101, must be >= -100 and at most 100");
  EXPECT_EQ(refusal(1, std::numeric_limits<int>::min()).field, "priority");
}

TEST(Scheduler, TheDoorNamesFieldAndNumbers) {
  Scheduler scheduler(small_options());
  const auto refusal = [&](int prompt, int max_tokens) {
    const auto answer =
        scheduler.check_admissible({.seq = {}, .prompt = counting(prompt), .max_tokens = max_tokens});
    return answer ? Error{} : answer.error();
  };
  EXPECT_EQ(refusal(0, 1).field, "prompt_token_ids");
  EXPECT_EQ(refusal(0, 1).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal(1, -1).field, "max_tokens");
  EXPECT_EQ(refusal(65, 0).field, "prompt_token_ids");
  EXPECT_EQ(refusal(64, 0).message, "");
  EXPECT_EQ(refusal(60, 4).message, "");
  const Error context = refusal(60, 5);
  EXPECT_EQ(context.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(context.field, "max_tokens");
  EXPECT_NE(context.message.find("65"), std::string::npos);
  EXPECT_NE(context.message.find("64"), std::string::npos);
  EXPECT_EQ(refusal(1, std::numeric_limits<int>::max()).field, "max_tokens");
}

TEST(Scheduler, TheDoorComparesWithTheTotalPool) {
  SchedulerOptions options = small_options();
  options.block_counts = {3};
  Scheduler scheduler(options);
  const auto answer = [&](int prompt, int max_tokens) {
    return scheduler.check_admissible({.seq = {}, .prompt = counting(prompt), .max_tokens = max_tokens});
  };
  EXPECT_TRUE(answer(12, 1));  // the last token is never computed
  ASSERT_FALSE(answer(12, 2));
  EXPECT_EQ(answer(12, 2).error().field, "max_tokens");
  EXPECT_NE(answer(12, 2).error().message.find("4 KV blocks"), std::string::npos)
      << answer(12, 2).error().message;
  EXPECT_EQ(answer(13, 0).error().field, "prompt_token_ids");
}

TEST(Scheduler, DecodesGoFirstAndPrefillsShareTheRest) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = {50}, .max_tokens = 20});
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 1}}));
  scheduler.add({.seq = {2}, .prompt = counting(20), .max_tokens = 1});
  scheduler.add({.seq = {3}, .prompt = {90, 91, 92, 93, 94, 95, 96, 97, 98, 99}, .max_tokens = 1});
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 1}, {2, 8}, {3, 7}}));
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 1}, {2, 12}, {3, 3}}));
  EXPECT_EQ(scheduler.figures({2}).generated_tokens, 1);
}

TEST(Scheduler, ChunksAreCapped) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = counting(10), .max_tokens = 1, .prefill_chunk_tokens = 3});
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 3}}));
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 3}}));
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 3}}));
  EXPECT_EQ(run_step(scheduler), (Rows{{1, 1}}));
}

TEST(Scheduler, AWarmFullHitComputesOneToken) {
  Scheduler scheduler(small_options());
  for (int prompt : {12, 13, 15}) {
    const SeqId cold{static_cast<uint64_t>(prompt)}, warm{static_cast<uint64_t>(100 + prompt)};
    Tokens tokens = counting(prompt);
    tokens[0] = 1000 + prompt;
    scheduler.add({.seq = cold, .prompt = tokens, .max_tokens = 5});
    for (int i = 0; i < 5; ++i) run_step(scheduler);
    scheduler.finish(cold);
    scheduler.add({.seq = warm, .prompt = tokens, .max_tokens = 1});
    const ScheduledStep step = scheduler.plan_step();
    ASSERT_EQ(step.plan.row_count(), 1);
    EXPECT_EQ(step.plan.sequences[0].first_position, prompt - 1);
    EXPECT_EQ(step.completing, std::vector{0});
    EXPECT_EQ(step.copies.size(), prompt == 13 ? 0u : 1u);  // 12 = three blocks + nothing: the last in part
    EXPECT_EQ(scheduler.figures(warm).cached_tokens, prompt - 1);
    scheduler.commit_step({});
    scheduler.finish(warm);
    scheduler.audit();
  }
}

TEST(Scheduler, GeneratedTokensAreCachedToo) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 8});
  for (int i = 0; i < 8; ++i) run_step(scheduler);
  Tokens turn(scheduler.tokens({1}).begin(), scheduler.tokens({1}).end());
  ASSERT_EQ(turn.size(), 14u);
  scheduler.finish({1});
  turn.push_back(99);
  scheduler.add({.seq = {2}, .prompt = turn, .max_tokens = 1});
  EXPECT_EQ(run_step(scheduler),
            (Rows{{2, 2}}));  // 13 positions were computed, the last in a block of its own
}

// Also when the cached prompt ends inside a block that nothing has filled up.
TEST(Scheduler, WarmPromptComputesOneTokenWhereverItEnds) {
  for (int length = 1; length <= 13; ++length) {
    Scheduler scheduler(small_options());
    scheduler.add({.seq = {1}, .prompt = counting(length), .max_tokens = 1});
    while (scheduler.figures({1}).computed_tokens < length) run_step(scheduler);
    scheduler.finish({1});
    scheduler.audit();
    scheduler.add({.seq = {2}, .prompt = counting(length), .max_tokens = 1});
    EXPECT_EQ(run_step(scheduler), (Rows{{2, 1}})) << length;
    scheduler.finish({2});
    // What the second one wrote is in the tree already.
    EXPECT_EQ(scheduler.pool(0).idle_count(), (length + 3) / 4) << length;
    scheduler.audit();
  }
}

TEST(Scheduler, AllPromptLogitsAreComputedOnce) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = counting(20), .max_tokens = 1});
  run_step(scheduler);
  run_step(scheduler);
  scheduler.finish({1});
  scheduler.add({.seq = {2}, .prompt = counting(20), .max_tokens = 2, .prompt_logits = PromptLogits::kAll});
  int logits = 0;
  for (int i = 0; i < 2; ++i) {
    const ScheduledStep step = scheduler.plan_step();
    EXPECT_EQ(step.plan.sequences[0].logits_from, 0);
    logits += step.plan.logit_row_count();
    if (i == 0) scheduler.commit_step({});
    if (i == 1) scheduler.commit_step(std::vector<SampledToken>{{{2}, 7}});
  }
  EXPECT_EQ(logits, 20);
  EXPECT_EQ(scheduler.figures({2}).cached_tokens, 0);
  const ScheduledStep decode = scheduler.plan_step();
  EXPECT_EQ(decode.plan.logit_row_count(), 1);
  scheduler.commit_step(std::vector<SampledToken>{{{2}, 7}});
  scheduler.audit();
}

TEST(Scheduler, ScopesDoNotShare) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = counting(12), .max_tokens = 1, .scope = {1}});
  run_step(scheduler);
  scheduler.finish({1});
  scheduler.add({.seq = {2}, .prompt = counting(12), .max_tokens = 0, .scope = {2}});
  EXPECT_EQ(scheduler.plan_step().plan.row_count(), 12);
  scheduler.commit_step({});
}

TEST(Scheduler, TheOldestRunsThroughAndTheYoungerIsPreempted) {
  SchedulerOptions options = small_options();
  options.block_counts = {6};
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = {10, 11}, .max_tokens = 18});
  scheduler.add({.seq = {2}, .prompt = {20, 21}, .max_tokens = 18});
  int preempted_steps = 0;
  while (scheduler.contains({1})) {
    const Rows rows = run_step(scheduler);
    ASSERT_EQ(rows.at(0).first, 1u);
    preempted_steps += scheduler.figures({2}).state == SequenceState::kPreempted;
    if (scheduler.figures({1}).generated_tokens == 18) scheduler.finish({1});
  }
  EXPECT_GT(preempted_steps, 0);
  EXPECT_EQ(scheduler.figures({2}).preemptions, 1);
  while (scheduler.figures({2}).generated_tokens < 18) run_step(scheduler);
  scheduler.finish({2});
  EXPECT_EQ(scheduler.pool(0).pinned_count() + scheduler.pool(0).open_count(), 0);
}

TEST(Scheduler, PreemptionsOfOneSequenceAreBounded) {
  SchedulerOptions options = small_options();
  options.geometry.block_tokens = 2;
  options.block_counts = {33};
  options.running_sequences_max = 16;
  Scheduler scheduler(options);
  for (int i = 1; i <= 40; ++i)
    scheduler.add({.seq = {static_cast<uint64_t>(i)}, .prompt = {1000 + i}, .max_tokens = 60});
  int most = 0, all = 0;
  for (int alive = 40; alive > 0;) {
    for (const auto& [seq, rows] : run_step(scheduler)) {
      const SequenceFigures figures = scheduler.figures({seq});
      if (figures.generated_tokens < 60) continue;
      most = std::max(most, figures.preemptions);
      all += figures.preemptions;
      scheduler.finish({seq});
      --alive;
    }
  }
  EXPECT_GT(all, 40) << "too little pressure to test the bound";
  EXPECT_LE(most, kPreemptionsFree);
}

TEST(Scheduler, AnAbandonedStepIsAsIfItHadNotBeenPlanned) {
  Scheduler scheduler(small_options());
  scheduler.add({.seq = {1}, .prompt = counting(10), .max_tokens = 3});
  run_step(scheduler);
  scheduler.add({.seq = {2}, .prompt = counting(10), .max_tokens = 3});
  const auto shape = [&](const ScheduledStep& step) {
    std::vector<std::tuple<uint64_t, Position, size_t>> rows;
    for (const PlannedSequence& s : step.plan.sequences)
      rows.emplace_back(s.seq.value, s.first_position, s.tokens.size());
    return rows;
  };
  const auto first = shape(scheduler.plan_step());
  scheduler.abandon_step();
  scheduler.audit();
  EXPECT_EQ(scheduler.figures({2}).state, SequenceState::kWaiting);
  EXPECT_EQ(scheduler.figures({2}).blocks_used, 0);
  EXPECT_EQ(shape(scheduler.plan_step()), first);
  scheduler.abandon_step();
}

TEST(Scheduler, FinishFreesInEveryState) {
  SchedulerOptions options = small_options();
  options.running_sequences_max = 2;
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = counting(4), .max_tokens = 9});
  Tokens other = counting(40);
  other[0] = 99;
  scheduler.add({.seq = {2}, .prompt = other, .max_tokens = 9});
  scheduler.add({.seq = {3}, .prompt = counting(4), .max_tokens = 9});
  run_step(scheduler);
  EXPECT_EQ(scheduler.figures({1}).state, SequenceState::kDecoding);
  EXPECT_EQ(scheduler.figures({2}).state, SequenceState::kPrefilling);
  EXPECT_EQ(scheduler.figures({3}).state, SequenceState::kWaiting);
  for (uint64_t seq : {3, 2, 1}) {
    scheduler.finish({seq});
    EXPECT_FALSE(scheduler.contains({seq}));
    scheduler.audit();
  }
  EXPECT_EQ(scheduler.pool(0).pinned_count() + scheduler.pool(0).open_count(), 0);
}

}  // namespace
}  // namespace quire
