#include "engine/trace_replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tiny_engine.h"

namespace quire {
namespace {

ReplayOptions small_options() {
  KvGeometry geometry{.block_tokens = 4, .type = KvType::kF32, .groups = {}};
  geometry.groups.push_back({.layers = {0}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = 0});
  return {
      .scheduler = {.geometry = geometry, .block_counts = {64}, .context_length = 100, .step_tokens_max = 16},
      .vocab_size = 1 << 30};
}

ReplayFigures replay(const RequestTrace& trace, const ReplayOptions& options) {
  TraceReplay replay(trace, options);
  while (replay.step()) continue;
  return replay.figures();
}

// One request after another. The second finds the first block of ids (8 tokens) whole; of the third's 12
// tokens all are there, and one is computed all the same.
TEST(TraceReplay, CountsRequestsThatFollowOneAnother) {
  const RequestTrace trace{
      .requests = {{.arrival_ms = 0, .prompt_tokens = 8, .output_tokens = 3, .block_ids = {1}},
                   {.arrival_ms = 10, .prompt_tokens = 12, .output_tokens = 2, .block_ids = {1, 2}},
                   {.arrival_ms = 20, .prompt_tokens = 12, .output_tokens = 1, .block_ids = {1, 2}}},
      .block_tokens = 8};
  ReplayOptions options = small_options();
  options.step_ms = 1;
  const ReplayFigures figures = replay(trace, options);
  EXPECT_EQ(figures.requests_done, 3);
  EXPECT_EQ(figures.requests_refused, 0);
  EXPECT_EQ(figures.prompt_tokens, 8 + 12 + 12);
  EXPECT_EQ(figures.output_tokens, 3 + 2 + 1);
  EXPECT_EQ(figures.stats.cached_tokens, 0 + 8 + 11);
  EXPECT_EQ(figures.ideal_cached_tokens, 0 + 8 + 11);
  EXPECT_EQ(figures.stats.steps, 3 + 2 + 1);
  EXPECT_EQ(figures.stats.rows, (8 + 1 + 1) + (4 + 1) + 1);
  EXPECT_EQ(figures.ttft_steps, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(figures.gap_steps, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(figures.running_max, 1);
  EXPECT_EQ(figures.stats.sequence_steps, 6);
  EXPECT_EQ(figures.stats.preemptions, 0);
}

RequestTrace four_alike() {
  RequestTrace trace;
  for (int i = 0; i < 4; ++i)
    trace.requests.push_back({.arrival_ms = 1000.0 * i, .prompt_tokens = 4, .output_tokens = 3});
  return trace;
}

TEST(TraceReplay, WithoutTimesAllComeAtOnce) {
  const ReplayFigures figures = replay(four_alike(), small_options());
  EXPECT_EQ(figures.stats.steps, 3);
  EXPECT_EQ(figures.stats.rows, 4 * (4 + 1 + 1));
  EXPECT_EQ(figures.running_max, 4);
  EXPECT_EQ(figures.stats.sequence_steps, 3 * 4);
  EXPECT_EQ(figures.ttft_steps, (std::vector<int>(4, 1)));
  EXPECT_EQ(figures.gap_steps, (std::vector<int>(8, 1)));
  EXPECT_EQ(figures.stats.cached_tokens, 0);
}

// One new request a step: 1, 2, 3, 3, 2, 1 run.
TEST(TraceReplay, WaitsWhenTheQueueIsFull) {
  ReplayOptions options = small_options();
  options.waiting_max = 1;
  const ReplayFigures figures = replay(four_alike(), options);
  EXPECT_EQ(figures.stats.steps, 6);
  EXPECT_EQ(figures.running_max, 3);
  EXPECT_EQ(figures.stats.sequence_steps, 1 + 2 + 3 + 3 + 2 + 1);
}

TEST(TraceReplay, GoesOnAfterARefusal) {
  RequestTrace trace = four_alike();
  trace.requests[0].prompt_tokens = 98;
  trace.requests[2].output_tokens = 97;
  ReplayOptions options = small_options();
  options.step_ms = 1;
  const ReplayFigures figures = replay(trace, options);
  EXPECT_EQ(figures.requests_refused, 2);
  EXPECT_EQ(figures.requests_done, 2);
  EXPECT_EQ(figures.prompt_tokens, 8);
  ASSERT_TRUE(figures.first_refusal);
  EXPECT_EQ(figures.first_refusal->code, ErrorCode::kResourceExhausted);
  EXPECT_NE(figures.first_refusal->message.find("98"), std::string::npos);
}

// Twenty requests of up to 12 blocks each in 16 blocks: some are preempted, and all get their tokens.
TEST(TraceReplay, EveryRequestGetsItsTokensInASmallPool) {
  RequestTrace trace;
  int64_t output = 0;
  for (int i = 0; i < 20; ++i) {
    trace.requests.push_back({.prompt_tokens = 1 + i % 7, .output_tokens = 40 - i});
    output += 40 - i;
  }
  ReplayOptions options = small_options();
  options.scheduler.block_counts = {16};
  const ReplayFigures figures = replay(trace, options);
  EXPECT_EQ(figures.requests_done, 20);
  EXPECT_EQ(figures.output_tokens, output);
  EXPECT_EQ(figures.ttft_steps.size(), 20u);
  EXPECT_EQ(std::ssize(figures.gap_steps), output - 20);
  EXPECT_GT(figures.stats.preemptions, 0);
  EXPECT_GE(figures.stats.rows, figures.prompt_tokens + output - 20);
}

// Four requests of 4 prompt and 3 output tokens in blocks of 4. A step before the end each holds 5 or 6
// tokens, in two blocks; where it reserves its context of 100, 25 blocks.
TEST(TraceReplay, AccountsWhatEachPolicyHolds) {
  ReplayOptions options = small_options();
  options.scheduler.kv_policy = KvPolicy::kPaged;
  const PoolUse paged = replay(four_alike(), options).stats.pools[0].step_sums;
  EXPECT_EQ(paged.slots_written, 4 * (4 + 5 + 6));
  EXPECT_EQ(paged.blocks_held, 4 * (1 + 2 + 2));

  options.scheduler.kv_policy = KvPolicy::kContiguous;
  const PoolUse recorded = replay(four_alike(), options).stats.pools[0].step_sums;
  EXPECT_EQ(recorded.slots_written, 4 * (4 + 5 + 6));
  EXPECT_EQ(recorded.blocks_held, 4 * (2 + 2 + 2));

  // 64 blocks: two of 25 run at once, and 14 blocks are too short a range for the third.
  options.asked = AskedTokens::kContext;
  const ReplayFigures asked = replay(four_alike(), options);
  EXPECT_EQ(asked.running_max, 2);
  EXPECT_EQ(asked.stats.steps, 6);
  EXPECT_EQ(asked.stats.pools[0].step_sums.blocks_held, 6 * 2 * 25);
  EXPECT_EQ(asked.stats.pools[0].step_sums.slots_external_waste, 3 * 14 * 4);
}

TEST(TraceReplay, PlansThePoolsOfTheEngine) {
  for (TinyKind kind : {TinyKind::kFull, TinyKind::kWindowed}) {
    EngineOptions options = tiny_options(kind);
    options.kv_bytes = 3 << 20;
    const ReplayOptions planned = plan_replay(options).value();
    const EngineStats stats = open_tiny(options)->stats();
    ASSERT_EQ(planned.scheduler.block_counts.size(), stats.pools.size());
    for (size_t g = 0; g < stats.pools.size(); ++g)
      EXPECT_EQ(planned.scheduler.block_counts[g], stats.pools[g].total);
    EXPECT_EQ(planned.vocab_size, open_tiny(options)->model().vocab_size);
  }
}

}  // namespace
}  // namespace quire
