#include "sched/prefix_pins.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sched/scheduler.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int64_t kMs = 1'000'000;

// Blocks of 4 tokens, of which at most four may be pinned.
SchedulerOptions options_of(const std::vector<int>& windows, int blocks) {
  KvGeometry geometry{.block_tokens = 4, .type = KvType::kF32, .groups = {}};
  for (int window : windows)
    geometry.groups.push_back({.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
  return {.geometry = geometry,
          .block_counts = std::vector<int>(windows.size(), blocks),
          .context_length = 128,
          .step_tokens_max = 64,
          .running_sequences_max = 8,
          .pinned_blocks_max = 4};
}

Tokens counting(int n, TokenId from = 0) {
  Tokens tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Computes a prompt and lets it go; returns how many of its tokens were computed.
int compute(Scheduler& scheduler, uint64_t seq, const Tokens& prompt) {
  scheduler.add({.seq = {seq}, .prompt = prompt});
  int rows = 0;
  while (scheduler.contains({seq})) {
    const ScheduledStep step = scheduler.plan_step();
    rows += step.plan.row_count();
    const bool done = !step.completing.empty();
    scheduler.commit_step({});
    if (done) scheduler.finish({seq});
    scheduler.audit();
  }
  return rows;
}

TEST(PrefixPins, APinnedPrefixOutlivesOthersUntilItsTimeIsOver) {
  Scheduler scheduler(options_of({0}, 12));
  const Tokens prefix = counting(12);
  compute(scheduler, 1, prefix);
  const auto pin = scheduler.pin_prefix({.scope = {}, .tokens = prefix, .now_ns = 0, .ttl_ms = 10});
  ASSERT_TRUE(pin) << pin.error().message;
  EXPECT_EQ(scheduler.kv_accounting().now[0].blocks_pinned_alone, 3);
  EXPECT_EQ(scheduler.kv_accounting().now[0].blocks_held, 0);
  // Others need all that is not pinned, over and over.
  for (uint64_t seq = 2; seq < 6; ++seq)
    compute(scheduler, seq, counting(32, static_cast<TokenId>(1000 * seq)));
  Tokens longer = prefix;
  longer.push_back(77);
  EXPECT_EQ(compute(scheduler, 6, longer), 1);
  scheduler.expire_pins(10 * kMs - 1);
  EXPECT_EQ(scheduler.pins().count(), 1);
  scheduler.expire_pins(10 * kMs);
  EXPECT_EQ(scheduler.pins().count(), 0);
  EXPECT_EQ(scheduler.pool(0).pinned_count(), 0);
  for (uint64_t seq = 7; seq < 9; ++seq)
    compute(scheduler, seq, counting(32, static_cast<TokenId>(1000 * seq)));
  EXPECT_EQ(compute(scheduler, 9, longer), 13);
}

TEST(PrefixPins, UnpinningLetsGoOnce) {
  Scheduler scheduler(options_of({0}, 12));
  compute(scheduler, 1, counting(8));
  const auto pin = scheduler.pin_prefix({.scope = {}, .tokens = counting(8), .now_ns = 0, .ttl_ms = 1000});
  ASSERT_TRUE(pin);
  EXPECT_TRUE(scheduler.unpin_prefix(*pin));
  const auto again = scheduler.unpin_prefix(*pin);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(again.error().field, "pin_id");
  EXPECT_EQ(scheduler.pool(0).idle_count(), 2);
  scheduler.audit();
}

TEST(PrefixPins, TheQuotaCountsASharedBlockOnce) {
  Scheduler scheduler(options_of({0}, 24));
  Tokens other = counting(12);
  other.back() = 99;
  compute(scheduler, 1, counting(12));
  compute(scheduler, 2, other);
  compute(scheduler, 3, counting(8, 500));
  const auto pin = [&](const Tokens& tokens) {
    return scheduler.pin_prefix({.scope = {}, .tokens = tokens, .now_ns = 0, .ttl_ms = 1000});
  };
  const auto first = pin(counting(12));
  ASSERT_TRUE(first);
  ASSERT_TRUE(pin(other));  // one block more
  ASSERT_TRUE(pin(other));  // none
  const auto refused = pin(counting(8, 500));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().field, "pinned_blocks_max");
  EXPECT_EQ(
      refused.error().message,
      "the prefix needs 2 more pinned blocks of 4 tokens in layer group 0, pinned_blocks_max is 4 and 4 "
      "are pinned");
  ASSERT_TRUE(scheduler.unpin_prefix(*first));
  EXPECT_EQ(scheduler.pool(0).pinned_count(), 3);
  scheduler.audit();
}

TEST(PrefixPins, WhatCannotBePinnedIsRefusedWithNumbers) {
  Scheduler scheduler(options_of({0}, 12));
  compute(scheduler, 1, counting(8));
  const auto refusal = [&](const Tokens& tokens, int64_t ttl_ms, CacheScope scope) {
    const auto pin = scheduler.pin_prefix({.scope = scope, .tokens = tokens, .now_ns = 0, .ttl_ms = ttl_ms});
    return pin ? Error{} : pin.error();
  };
  EXPECT_EQ(refusal(counting(3), 1, {}).message,
            "a prefix of 3 tokens has no whole block of 4, nothing can be pinned");
  EXPECT_EQ(refusal({}, 1, {}).field, "prompt_token_ids");
  EXPECT_EQ(refusal(counting(8), 0, {}).field, "ttl_ms");
  EXPECT_EQ(refusal(counting(8), -1, {}).field, "ttl_ms");
  EXPECT_EQ(refusal(counting(8), kPinTtlMsMax + 1, {}).field, "ttl_ms");
  const Error missing = refusal(counting(12), 1, {});
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.message, "2 of the prefix's 3 whole blocks are cached, all must be: compute it first");
  EXPECT_EQ(refusal(counting(8), 1, CacheScope{5}).code, ErrorCode::kNotFound);
  EXPECT_EQ(scheduler.pins().count(), 0);
  EXPECT_EQ(refusal(counting(8), kPinTtlMsMax, {}).message, "");
}

TEST(PrefixPins, AWindowsGroupPinsTheWindowOnly) {
  // Window 6: a hit at 16 sees positions 11 … 15 of group 1, in its last two blocks.
  Scheduler scheduler(options_of({0, 6}, 16));
  compute(scheduler, 1, counting(16));
  ASSERT_TRUE(scheduler.pin_prefix({.scope = {}, .tokens = counting(16), .now_ns = 0, .ttl_ms = 5}));
  EXPECT_EQ(scheduler.pool(0).pinned_count(), 4);
  EXPECT_EQ(scheduler.pool(1).pinned_count(), 2);
  for (uint64_t seq = 2; seq < 8; ++seq)
    compute(scheduler, seq, counting(40, static_cast<TokenId>(1000 * seq)));
  Tokens longer = counting(16);
  longer.push_back(77);
  EXPECT_EQ(compute(scheduler, 9, longer), 1);
}

TEST(PrefixPins, TheDoorCountsOnNoPinnedBlock) {
  Scheduler scheduler(options_of({0}, 12));
  const SequenceRequest fits{.seq = {1}, .prompt = counting(32), .max_tokens = 1};
  EXPECT_TRUE(scheduler.check_admissible(fits));
  const auto refused = scheduler.check_admissible({.seq = {1}, .prompt = counting(32), .max_tokens = 2});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("9 KV blocks"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("has 8"), std::string::npos) << refused.error().message;
}

TEST(PrefixPins, TheQuotaLeavesRequestsABlock) {
  SchedulerOptions options = options_of({0}, 4);
  const auto answer = Scheduler::check_options(options);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().field, "pinned_blocks_max");
  options.pinned_blocks_max = 3;
  EXPECT_TRUE(Scheduler::check_options(options));
  options.pinned_blocks_max = -1;
  EXPECT_FALSE(Scheduler::check_options(options));
}

TEST(PrefixPins, ADroppedScopeKeepsItsPinsUntilTheyGo) {
  Scheduler scheduler(options_of({0}, 12));
  compute(scheduler, 1, counting(8));
  const auto pin = scheduler.pin_prefix({.scope = {}, .tokens = counting(8), .now_ns = 0, .ttl_ms = 5});
  ASSERT_TRUE(pin);
  scheduler.drop_scope({});
  scheduler.audit();
  EXPECT_EQ(scheduler.pool(0).pinned_count(), 2);
  ASSERT_TRUE(scheduler.unpin_prefix(*pin));
  EXPECT_EQ(scheduler.pool(0).free_count(), 12);
  scheduler.audit();
}

}  // namespace
}  // namespace quire
