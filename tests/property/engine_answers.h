// Answers of an engine as the property tests compare them: bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire::test {

// Everything of one choice that may not depend on circumstances.
struct Answered {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<uint32_t> logprob_bits;  // of each token, and of the best ones beside it
  FinishReason finish = FinishReason::kNone;
  bool operator==(const Answered&) const = default;
};

struct AnsweredRequest {
  std::vector<Answered> choices;
  RequestSummary summary;
};

inline AnsweredRequest read_answers(TokenStream& stream) {
  AnsweredRequest answers;
  answers.choices.resize(stream.summary().choices.size());
  while (auto event = stream.next()) {
    Answered& answer = answers.choices.at(static_cast<size_t>(event->choice));
    if (event->token_id) answer.ids.push_back(*event->token_id);
    answer.text += event->text;
    if (event->logprob) answer.logprob_bits.push_back(std::bit_cast<uint32_t>(event->logprob->logprob));
    for (const TokenLogprob& top : event->top_logprobs) {
      answer.logprob_bits.push_back(static_cast<uint32_t>(top.token_id));
      answer.logprob_bits.push_back(std::bit_cast<uint32_t>(top.logprob));
    }
    if (event->finish != FinishReason::kNone) answer.finish = event->finish;
  }
  answers.summary = stream.summary();
  return answers;
}

inline TokenStream submit(Engine& engine, const Request& request) {
  auto stream = engine.submit(request);
  EXPECT_TRUE(stream.has_value()) << stream.error().message;
  return std::move(stream.value());
}

inline AnsweredRequest answer(Engine& engine, const Request& request) {
  TokenStream stream = submit(engine, request);
  return read_answers(stream);
}

inline std::unique_ptr<Engine> open_engine(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(engine.value());
}

// Words of any kind: ids below `vocab_size`, without the special ones at its start.
inline std::vector<int32_t> random_prompt(std::mt19937& random, int count, int vocab_size) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(32 + random() % static_cast<uint32_t>(vocab_size - 64));
  return ids;
}

inline void expect_pools_whole(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running + stats.waiting + stats.sequences_running + stats.sequences_waiting, 0);
  for (const PoolStats& pool : stats.pools) EXPECT_EQ(pool.free + pool.idle, pool.total);
}

}  // namespace quire::test
