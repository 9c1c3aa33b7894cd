// Requests of several sequences: forks, one lifetime, shared blocks, and prompts that wait for their leader.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sched/policy.h"
#include "sched/scheduler.h"
#include "sched/test_scheduler.h"

namespace quire {
namespace {

using Rows = std::map<uint64_t, int>;  // sequence → rows of a step

SchedulerOptions small_options(int blocks) {
  return {.geometry = geometry_of(4, {0}),
          .block_counts = {blocks},
          .context_length = 100,
          .step_tokens_max = 16,
          .running_sequences_max = 8};
}

struct Ran {
  Rows rows;
  size_t copies = 0;
};

// Every sequence samples a token of its own.
Ran run_step(Scheduler& scheduler) {
  const ScheduledStep step = scheduler.plan_step();
  scheduler.audit();
  Ran ran{.rows = {}, .copies = step.copies.size()};
  std::vector<SampledToken> sampled;
  for (const PlannedSequence& s : step.plan.sequences)
    ran.rows[s.seq.value] = static_cast<int>(s.tokens.size());
  for (int index : step.completing) {
    const SeqId seq = step.plan.sequences[static_cast<size_t>(index)].seq;
    sampled.push_back({seq, static_cast<TokenId>(100 + seq.value)});
  }
  scheduler.commit_step(sampled);
  scheduler.audit();
  return ran;
}

void fork_to(Scheduler& scheduler, SeqId parent, const std::vector<uint64_t>& children) {
  for (uint64_t child : children)
    scheduler.fork({.parent = parent, .child = {child}, .token = static_cast<TokenId>(100 + child)});
}

TEST(SchedulerFork, SamplesShareThePromptAndCopyItsTailOnTheFirstWrite) {
  Scheduler scheduler(small_options(32));
  scheduler.add({.seq = {1}, .prompt = counting(10), .max_tokens = 9, .sequences = 4});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{1, 10}}));
  fork_to(scheduler, {1}, {2, 3, 4});
  scheduler.audit();
  EXPECT_EQ(scheduler.request_figures({3}).blocks_used, 3);
  EXPECT_EQ(scheduler.request_figures({3}).blocks_as_copies, 12);
  const Ran ran = run_step(scheduler);
  EXPECT_EQ(ran.rows, (Rows{{1, 1}, {2, 1}, {3, 1}, {4, 1}}));
  EXPECT_EQ(ran.copies, 3u);  // the last one writes in place
  for (uint64_t seq : {1, 2, 3, 4}) {
    const auto tokens = scheduler.tokens({seq});
    ASSERT_EQ(tokens.size(), 12u);
    EXPECT_EQ(tokens[10], static_cast<TokenId>(100 + seq));
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(run_step(scheduler).copies, 0u);
  const RequestFigures figures = scheduler.request_figures({2});
  EXPECT_EQ(figures.sequences, 4);
  EXPECT_EQ(figures.blocks_used_max, 2 + 4 * 3);  // 18 positions each, 8 of them shared
  EXPECT_EQ(figures.blocks_as_copies_max, 4 * 5);
  scheduler.finish({1});
  EXPECT_EQ(scheduler.request_figures({2}).sequences, 3);
  scheduler.finish_request({3});
  EXPECT_FALSE(scheduler.contains({2}) || scheduler.contains({3}) || scheduler.contains({4}));
  EXPECT_EQ(scheduler.pool(0).open_count() + scheduler.pool(0).pinned_count(), 0);
}

TEST(SchedulerFork, TheDoorCountsThePromptOnceAndNamesN) {
  const Scheduler scheduler(small_options(14));
  const auto refusal = [&](int n) {
    const auto answer =
        scheduler.check_admissible({.seq = {}, .prompt = counting(10), .max_tokens = 7, .sequences = n});
    return answer ? Error{} : answer.error();
  };
  EXPECT_EQ(refusal(0).field, "n");
  EXPECT_EQ(refusal(0).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal(-3).field, "n");
  EXPECT_EQ(refusal(9).field, "n");  // more than run at once
  // Two full prompt blocks, then two blocks and one more for each: 2 + n * 3.
  EXPECT_EQ(refusal(4).message, "");
  EXPECT_EQ(refusal(5).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refusal(5).field, "n");
  EXPECT_NE(refusal(5).message.find("17"), std::string::npos);
  EXPECT_NE(refusal(5).message.find("14"), std::string::npos);
}

TEST(SchedulerFork, AnAbandonedFirstWriteLeavesTheTailShared) {
  Scheduler scheduler(small_options(32));
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 9, .sequences = 2});
  run_step(scheduler);
  fork_to(scheduler, {1}, {2});
  const auto copies_of = [](const ScheduledStep& step) { return step.copies.size(); };
  EXPECT_EQ(copies_of(scheduler.plan_step()), 1u);
  scheduler.abandon_step();
  scheduler.audit();
  EXPECT_EQ(scheduler.request_figures({1}).blocks_used, 2);
  EXPECT_EQ(run_step(scheduler).copies, 1u);
}

TEST(SchedulerFork, AForkOfAForkOutlivesItsParents) {
  Scheduler scheduler(small_options(32));
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 9, .sequences = 2});
  run_step(scheduler);
  fork_to(scheduler, {1}, {2});
  scheduler.finish({1});
  EXPECT_EQ(run_step(scheduler).copies, 0u);
  fork_to(scheduler, {2}, {3});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{2, 1}, {3, 1}}));
  scheduler.finish({2});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{3, 1}}));
  EXPECT_EQ(scheduler.tokens({3}).size(), 10u);
}

TEST(SchedulerFork, APreemptedRequestComesBackWholeAndComputesItsPromptOnce) {
  SchedulerOptions options = small_options(21);
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = {90, 91}, .max_tokens = 82});
  scheduler.add({.seq = {2}, .prompt = counting(8), .max_tokens = 20, .sequences = 3});
  run_step(scheduler);
  fork_to(scheduler, {2}, {3, 4});
  // The first one takes the whole pool in the end: nothing of the others stays cached.
  while (scheduler.contains({1})) {
    const Rows rows = run_step(scheduler).rows;
    EXPECT_TRUE(rows.contains(1));
    const bool some = rows.contains(2) || rows.contains(3) || rows.contains(4);
    const bool all = rows.contains(2) && rows.contains(3) && rows.contains(4);
    EXPECT_EQ(some, all) << "samples are preempted together";
    if (scheduler.figures({1}).generated_tokens == 82) scheduler.finish({1});
  }
  EXPECT_EQ(scheduler.figures({3}).preemptions, 1);
  EXPECT_EQ(scheduler.figures({3}).state, SequenceState::kPreempted);
  int own = 0;
  std::map<uint64_t, int> generated;
  for (uint64_t seq : {2, 3, 4}) {
    generated[seq] = scheduler.figures({seq}).generated_tokens;
    own += generated[seq];
  }
  int rows = 0;
  for (bool back = false; !back;) {
    for (const auto& [seq, count] : run_step(scheduler).rows) rows += count;
    back = true;
    for (uint64_t seq : {2, 3, 4}) back &= scheduler.figures({seq}).generated_tokens > generated[seq];
  }
  EXPECT_LE(rows, 8 + own + 3 * 2);  // who is back earlier decodes on meanwhile
  EXPECT_GE(rows, 8 + own);
  scheduler.finish_request({4});
  EXPECT_EQ(scheduler.running_count() + scheduler.waiting_count(), 0);
}

TEST(SchedulerFork, BeamsAdvanceTogetherOrNotAtAll) {
  SchedulerOptions options = small_options(21);
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = {90, 91}, .max_tokens = 82});
  scheduler.add(
      {.seq = {2}, .prompt = counting(8), .max_tokens = 20, .sequences = 3, .pace = GroupPace::kTogether});
  run_step(scheduler);
  fork_to(scheduler, {2}, {3, 4});
  while (scheduler.contains({1})) {
    run_step(scheduler);
    if (scheduler.figures({1}).generated_tokens == 82) scheduler.finish({1});
  }
  EXPECT_EQ(scheduler.figures({2}).preemptions, 1);
  while (scheduler.figures({2}).generated_tokens < 20) {
    run_step(scheduler);
    EXPECT_EQ(scheduler.figures({2}).generated_tokens, scheduler.figures({3}).generated_tokens);
    EXPECT_EQ(scheduler.figures({2}).generated_tokens, scheduler.figures({4}).generated_tokens);
  }
  scheduler.finish_request({2});
}

TEST(SchedulerFork, CancelEndsTheWholeRequestInEveryState) {
  SchedulerOptions options = small_options(64);
  options.running_sequences_max = 4;
  Scheduler scheduler(options);
  Tokens long_prompt = counting(40);
  long_prompt[0] = 99;
  scheduler.add({.seq = {1}, .prompt = counting(6), .max_tokens = 9, .sequences = 2});
  scheduler.add({.seq = {10}, .prompt = long_prompt, .max_tokens = 9, .sequences = 2});
  scheduler.add({.seq = {20}, .prompt = counting(6), .max_tokens = 9, .sequences = 2});
  run_step(scheduler);
  fork_to(scheduler, {1}, {2});  // a shared tail
  for (uint64_t seq : {20, 10, 1}) {
    scheduler.finish_request({seq});
    EXPECT_FALSE(scheduler.contains({seq}));
    scheduler.audit();
  }
  EXPECT_FALSE(scheduler.contains({2}));
  EXPECT_EQ(scheduler.pool(0).open_count() + scheduler.pool(0).pinned_count(), 0);
}

TEST(SchedulerLeader, OfEqualPromptsThatArriveTogetherOneComputesAndTheOthersShare) {
  Scheduler scheduler(small_options(32));
  for (uint64_t seq : {1, 2, 3}) scheduler.add({.seq = {seq}, .prompt = counting(20), .max_tokens = 4});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{1, 16}}));
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{1, 4}, {2, 4}, {3, 4}}));
  EXPECT_EQ(scheduler.figures({2}).cached_tokens, 16);
  EXPECT_EQ(scheduler.request_figures({3}).blocks_used, 5);
  EXPECT_EQ(scheduler.pool(0).pinned_count(), 5) << "equal blocks are one";
  for (uint64_t seq : {1, 2, 3}) scheduler.finish({seq});
}

TEST(SchedulerLeader, WhenTheLeaderIsCancelledTheNextTakesOver) {
  Scheduler scheduler(small_options(32));
  scheduler.add({.seq = {1}, .prompt = counting(20), .max_tokens = 4, .prefill_chunk_tokens = 8});
  scheduler.add({.seq = {2}, .prompt = counting(20), .max_tokens = 4});
  scheduler.add({.seq = {3}, .prompt = counting(20), .max_tokens = 4});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{1, 8}}));
  scheduler.finish({1});
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{2, 12}}));
  EXPECT_EQ(run_step(scheduler).rows, (Rows{{2, 1}, {3, 1}}));
  EXPECT_EQ(scheduler.figures({3}).cached_tokens, 19);
  for (uint64_t seq : {2, 3}) scheduler.finish({seq});
}

TEST(SchedulerLeader, OtherPromptsPassThoseThatWait) {
  Scheduler scheduler(small_options(32));
  Tokens other = counting(20);
  other[0] = 50;
  scheduler.add({.seq = {1}, .prompt = counting(20), .max_tokens = 4, .prefill_chunk_tokens = 4});
  scheduler.add({.seq = {2}, .prompt = counting(20), .max_tokens = 4});
  scheduler.add({.seq = {3}, .prompt = other, .max_tokens = 4});
  scheduler.add({.seq = {4}, .prompt = counting(20), .max_tokens = 4, .scope = {7}});
  const Rows rows = run_step(scheduler).rows;
  EXPECT_TRUE(rows.contains(1) && rows.contains(3) && rows.contains(4));
  EXPECT_FALSE(rows.contains(2));
  for (uint64_t seq : {1, 2, 3, 4}) scheduler.finish({seq});
}

TEST(SchedulerLeader, WaitingIsBounded) {
  SchedulerOptions options = small_options(400);
  options.context_length = 1000;
  Scheduler scheduler(options);
  scheduler.add({.seq = {1}, .prompt = counting(700), .max_tokens = 1, .prefill_chunk_tokens = 1});
  scheduler.add({.seq = {2}, .prompt = counting(700), .max_tokens = 1});
  int waited = 0;
  while (!run_step(scheduler).rows.contains(2)) ++waited;
  EXPECT_EQ(waited, kLeaderWaitsMax);
  scheduler.finish({1});
  scheduler.finish({2});
}

TEST(SchedulerPace, APrefillLeavesRunningStreamsTheirPace) {
  SchedulerOptions options = small_options(600);
  options.context_length = 2000;
  options.step_tokens_max = 512;
  options.itl_target_ms = 10;
  Scheduler scheduler(options);
  const auto step_ms = [](int decodes, int prefills) { return 3.0 + 0.05 * decodes + 0.25 * prefills; };
  scheduler.add({.seq = {1}, .prompt = counting(4), .max_tokens = 400});
  const auto run = [&] {
    int decodes = 0, prefills = 0;
    for (const auto& [seq, rows] : run_step(scheduler).rows) (rows == 1 ? decodes : prefills) += rows;
    const double ms = step_ms(decodes, prefills);
    scheduler.note_step_time({.decode_rows = decodes, .prefill_rows = prefills, .ms = ms});
    return std::pair(prefills, ms);
  };
  for (int i = 0; i < 10; ++i) run();
  Tokens prompt = counting(1200);
  prompt[0] = 5000;
  scheduler.add({.seq = {2}, .prompt = prompt, .max_tokens = 4});
  int steps = 0;
  while (scheduler.figures({2}).generated_tokens == 0) {
    const auto [prefills, ms] = run();
    EXPECT_GE(prefills, kPrefillRowsGuaranteed);
    if (++steps > 1) EXPECT_LE(ms, 10.0);
  }
  // The gap is used, too: some 27 rows a step go beside a decode.
  EXPECT_LE(steps, 1200 / 20);
  scheduler.finish({1});
  scheduler.finish({2});
}

}  // namespace
}  // namespace quire
