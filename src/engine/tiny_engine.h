// For tests: engines over tiny models, and answers read to their end.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/tiny_model.h"
#include "quire/engine.h"

namespace quire {

inline EngineOptions tiny_options(TinyKind kind = TinyKind::kFull) {
  return {.model_path = tiny_model_path(kind), .threads = 2, .kv_type = "f32", .exact = true};
}

inline std::unique_ptr<Engine> open_tiny(const EngineOptions& options = tiny_options()) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(engine).value();
}

inline std::vector<int32_t> random_prompt(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 256);
  return ids;
}

// An answer read to its end.
struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::vector<std::vector<TokenLogprob>> tops;
  std::vector<PromptPosition> positions;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;
  RequestSummary summary;
  int final_events = 0;
};

inline Answer read_all(TokenStream& stream) {
  Answer answer;
  while (auto event = stream.next()) {
    EXPECT_EQ(answer.finish, FinishReason::kNone) << "an event after the final one";
    if (event->token_id) answer.ids.push_back(*event->token_id);
    answer.text += event->text;
    if (event->logprob) answer.logprobs.push_back(*event->logprob);
    if (event->token_id) answer.tops.push_back(event->top_logprobs);
    for (auto& position : event->prompt_positions) answer.positions.push_back(std::move(position));
    answer.finish = event->finish;
    answer.final_events += event->finish != FinishReason::kNone ? 1 : 0;
    answer.error = event->error;
  }
  EXPECT_EQ(answer.final_events, 1);
  answer.summary = stream.summary();
  return answer;
}

// All choices of a request, read to their ends.
inline std::vector<Answer> read_choices(TokenStream& stream) {
  std::vector<Answer> answers(stream.summary().choices.size());
  while (auto event = stream.next()) {
    Answer& answer = answers.at(static_cast<size_t>(event->choice));
    EXPECT_EQ(answer.finish, FinishReason::kNone) << "an event after the final one";
    if (event->token_id) answer.ids.push_back(*event->token_id);
    answer.text += event->text;
    if (event->logprob) answer.logprobs.push_back(*event->logprob);
    if (event->token_id) answer.tops.push_back(event->top_logprobs);
    answer.finish = event->finish;
    answer.final_events += event->finish != FinishReason::kNone ? 1 : 0;
    answer.error = event->error;
  }
  const RequestSummary summary = stream.summary();
  int tokens = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].final_events, 1);
    EXPECT_EQ(summary.choices[i].finish, answers[i].finish);
    EXPECT_EQ(summary.choices[i].completion_tokens, static_cast<int>(answers[i].ids.size()));
    tokens += summary.choices[i].completion_tokens;
    answers[i].summary = summary;
  }
  EXPECT_EQ(summary.usage.completion_tokens, tokens);
  return answers;
}

inline std::vector<Answer> ask_choices(Engine& engine, Request request) {
  auto stream = engine.submit(std::move(request));
  EXPECT_TRUE(stream.has_value()) << stream.error().message;
  return read_choices(stream.value());
}

inline Answer ask(Engine& engine, Request request) {
  auto stream = engine.submit(std::move(request));
  EXPECT_TRUE(stream.has_value()) << stream.error().message;
  Answer answer = read_all(stream.value());
  EXPECT_EQ(answer.summary.usage.completion_tokens, static_cast<int>(answer.ids.size()));
  return answer;
}

inline void expect_nothing_held(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  for (const PoolStats& pool : stats.pools) {
    EXPECT_EQ(pool.open, 0);
    EXPECT_EQ(pool.pinned, 0);
    EXPECT_EQ(pool.free + pool.idle, pool.total);
  }
}

// Runs for 500 tokens unless somebody stops it.
inline Request endless(uint32_t seed) {
  return {.prompt_token_ids = random_prompt(10, seed),
          .sampling = {.max_tokens = 500, .logit_bias = {{kTinyBroken, -100.0f}}, .ignore_eos = true}};
}

}  // namespace quire
