// The life of requests: cancelled, refused, broken, abandoned.
#include "engine/engine_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/tiny_engine.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

// Cancels requests after `tokens` tokens until one was caught alive; a busy machine may let some finish.
Answer cancel_after(Engine& engine, int tokens) {
  for (uint32_t attempt = 0;; ++attempt) {
    auto stream = engine.submit(endless(attempt)).value();
    for (int t = 0; t < tokens; ++t) EXPECT_TRUE(stream.next().has_value());
    std::thread other([&] { stream.cancel(); });
    const Answer answer = read_all(stream);
    other.join();
    stream.cancel();
    EXPECT_FALSE(stream.next().has_value());
    if (answer.finish == FinishReason::kCancelled || attempt == 100) return answer;
    EXPECT_EQ(answer.finish, FinishReason::kLength);
  }
}

TEST(EngineLife, CancelsInEveryState) {
  auto engine = open_tiny();
  for (int tokens : {0, 1, 5}) {
    const Answer answer = cancel_after(*engine, tokens);
    EXPECT_EQ(answer.finish, FinishReason::kCancelled);
    EXPECT_FALSE(answer.error.has_value());
    EXPECT_LT(answer.ids.size(), 500u);
    expect_nothing_held(*engine);
  }
  EXPECT_EQ(ask(*engine, {.prompt_token_ids = {1}, .sampling = {.max_tokens = 3}}).ids.size(), 3u);
}

TEST(EngineLife, CancelsWhatStillWaits) {
  EngineOptions options = tiny_options();
  options.step_tokens_max = 1;  // one sequence runs at a time
  auto engine = open_tiny(options);
  std::vector<TokenStream> streams;
  for (uint32_t i = 0; i < 20; ++i) streams.push_back(engine->submit(endless(i)).value());
  for (TokenStream& stream : streams) stream.cancel();
  int never_begun = 0;
  for (TokenStream& stream : streams) {
    const Answer answer = read_all(stream);
    never_begun += answer.finish == FinishReason::kCancelled && answer.ids.empty() ? 1 : 0;
  }
  EXPECT_GT(never_begun, 0);
  expect_nothing_held(*engine);
}

TEST(EngineLife, DestroyedStreamsGiveTheirBlocksBack) {
  auto engine = open_tiny();
  for (uint32_t i = 0; i < 5; ++i) {
    auto stream = engine->submit(endless(i)).value();
    if (i % 2 == 0) ASSERT_TRUE(stream.next().has_value());
    TokenStream moved = std::move(stream);
    stream = std::move(moved);
  }
  EXPECT_EQ(ask(*engine, {.prompt_token_ids = {1}, .sampling = {.max_tokens = 2}}).ids.size(), 2u);
  for (int i = 0; i < 1000 && engine->stats().running + engine->stats().waiting > 0; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  expect_nothing_held(*engine);
}

TEST(EngineLife, AFullInboxRefuses) {
  EngineOptions options = tiny_options();
  options.inbox_requests_max = 1;
  auto engine = open_tiny(options);
  std::vector<TokenStream> accepted;
  std::optional<Error> refused;
  for (uint32_t i = 0; i < 10000 && !refused; ++i) {
    auto stream = engine->submit(endless(i));
    if (stream) {
      accepted.push_back(std::move(*stream));
    } else {
      refused = stream.error();
    }
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::kOverloaded);
  EXPECT_NE(refused->message.find("limit is 1"), std::string::npos);
  EXPECT_GE(accepted.size(), 1u);
  accepted.clear();
  for (int i = 0; i < 5000 && engine->stats().waiting > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(ask(*engine, {.prompt_token_ids = {1}, .sampling = {.max_tokens = 2}}).ids.size(), 2u);
}

TEST(EngineLife, ABrokenRequestEndsAlone) {
  auto engine = open_tiny();
  auto neighbour = engine->submit(endless(1)).value();
  auto broken =
      engine->submit({.prompt_token_ids = {4, kTinyBroken, 7}, .sampling = {.max_tokens = 9}}).value();
  const Answer answer = read_all(broken);
  EXPECT_EQ(answer.finish, FinishReason::kError);
  ASSERT_TRUE(answer.error.has_value());
  EXPECT_EQ(answer.error->code, ErrorCode::kInternal);
  EXPECT_NE(answer.error->message.find("NaN"), std::string::npos);
  const Answer whole =
      ask(*engine,
          {.prompt_token_ids = {4, kTinyBroken, 7}, .sampling = {.max_tokens = 0}, .prompt_logprobs = 1});
  EXPECT_EQ(whole.finish, FinishReason::kError);
  EXPECT_EQ(read_all(neighbour).ids, ask(*open_tiny(), endless(1)).ids);
  expect_nothing_held(*engine);
}

TEST(EngineLife, MayBeDestroyedWhileItRunsAndStreamsOutliveIt) {
  std::vector<TokenStream> streams;
  {
    auto engine = open_tiny();
    for (uint32_t i = 0; i < 60; ++i) streams.push_back(engine->submit(endless(i)).value());
    ASSERT_TRUE(streams[0].next().has_value());
  }
  int cancelled = 0;
  for (TokenStream& stream : streams) {
    const FinishReason finish = read_all(stream).finish;
    EXPECT_TRUE(finish == FinishReason::kCancelled || finish == FinishReason::kLength);
    cancelled += finish == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_GT(cancelled, 0);
  streams[0].cancel();
}

TEST(EngineLife, SleepsWhenIdle) {
  auto engine = open_tiny();
  ask(*engine, {.prompt_token_ids = {1, 2, 3}, .sampling = {.max_tokens = 5}});
  std::this_thread::sleep_for(20ms);  // the pool spins for a moment after a step
  auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(cpu_seconds() - before, 0.05);
}

}  // namespace
}  // namespace quire
