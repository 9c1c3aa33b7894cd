#include "quire/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/tiny_engine.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

// The logits of every position of `tokens`, by the model alone: one sequence, blocks 0, 1, 2 …
std::vector<std::vector<float>> direct_logits(const EngineOptions& options,
                                              const std::vector<int32_t>& tokens) {
  const GgufFile file = GgufFile::open(options.model_path).value();
  ThreadPool pool(1);
  auto model =
      Model::load(file, {.kernels = find_kernels(options.isa),
                         .pool = &pool,
                         .arithmetic = options.exact ? Arithmetic::kFloat32 : Arithmetic::kInt8Activations})
          .value();
  const KvGeometry geometry = model->spec().kv_geometry(*kv_type_from_name(options.kv_type));
  const int blocks = static_cast<int>(tokens.size()) / geometry.block_tokens + 1;
  auto kv = KvStore::create(geometry, std::vector<int>(geometry.groups.size(), blocks)).value();
  std::vector<BlockId> table;
  for (int b = 0; b < blocks; ++b) table.push_back(BlockId{b});
  PlannedSequence sequence{.seq = SeqId{1}, .tokens = tokens};
  for (size_t g = 0; g < geometry.groups.size(); ++g) sequence.block_table[g] = table;
  const LogitsView logits = model->forward({.sequences = {sequence}}, *kv);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < logits.row_count(); ++r) rows.emplace_back(logits.row(r).begin(), logits.row(r).end());
  return rows;
}

// The greedy answer, each token by a forward pass over everything from the start.
std::vector<int32_t> direct_greedy(const EngineOptions& options, std::vector<int32_t> tokens, int count) {
  std::vector<int32_t> answer;
  for (int i = 0; i < count; ++i) {
    const auto row = direct_logits(options, tokens).back();
    answer.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
    if (answer.back() == kTinyEnd) break;
    tokens.push_back(answer.back());
  }
  return answer;
}

class EngineOfKind : public testing::TestWithParam<TinyKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EngineOfKind, testing::Values(TinyKind::kFull, TinyKind::kWindowed));

TEST_P(EngineOfKind, AnswersLikeTheModelAlone) {
  const EngineOptions options = tiny_options(GetParam());
  auto engine = open_tiny(options);
  for (int length : {1, 31, 32, 33, 100}) {
    const auto prompt = random_prompt(length, static_cast<uint32_t>(length));
    const Answer answer =
        ask(*engine, {.prompt_token_ids = prompt, .sampling = {.max_tokens = 12, .ignore_eos = true}});
    auto expected = direct_greedy(options, prompt, 12);
    EXPECT_EQ(answer.ids, expected);
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.summary.usage.prompt_tokens, length);
  }
  expect_nothing_held(*engine);
}

TEST_P(EngineOfKind, NeighboursChunksAndThreadsChangeNothing) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(
        {.prompt_token_ids = random_prompt(10 + 29 * static_cast<int>(i), i),
         .sampling = {.max_tokens = 20, .temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = i, .logprobs = 2}});
  }
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(ask(*open_tiny(tiny_options(GetParam())), request));
  EngineOptions options = tiny_options(GetParam());
  options.threads = 1;
  options.step_tokens_max = 40;
  auto engine = open_tiny(options);
  std::vector<TokenStream> streams;
  for (Request request : requests) {
    request.prefill_chunk_tokens = 7;
    streams.push_back(engine->submit(request).value());
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    const Answer together = read_all(streams[i]);
    EXPECT_EQ(together.ids, alone[i].ids);
    EXPECT_EQ(together.text, alone[i].text);
    ASSERT_EQ(together.logprobs.size(), alone[i].logprobs.size());
    for (size_t t = 0; t < together.logprobs.size(); ++t) {
      EXPECT_EQ(together.logprobs[t].logprob, alone[i].logprobs[t].logprob);
    }
  }
  expect_nothing_held(*engine);
}

TEST_P(EngineOfKind, PrefixReuseChangesNothingAndIsCounted) {
  auto engine = open_tiny(tiny_options(GetParam()));
  auto history = random_prompt(75, 4);
  const Answer first =
      ask(*engine, {.prompt_token_ids = history, .sampling = {.max_tokens = 30, .ignore_eos = true}});
  EXPECT_EQ(first.summary.usage.cached_tokens, 0);
  history.insert(history.end(), first.ids.begin(), first.ids.end());
  for (int32_t id : random_prompt(9, 5)) history.push_back(id);
  const Request second{.prompt_token_ids = history, .sampling = {.max_tokens = 30, .ignore_eos = true}};
  const Answer warm = ask(*engine, second);
  const Answer cold = ask(*open_tiny(tiny_options(GetParam())), second);
  EXPECT_GT(warm.summary.usage.cached_tokens, 0);
  EXPECT_LT(warm.summary.usage.cached_tokens, static_cast<int>(history.size()));
  EXPECT_EQ(cold.summary.usage.cached_tokens, 0);
  EXPECT_EQ(warm.ids, cold.ids);
  EXPECT_EQ(warm.summary.kv.tokens_used, cold.summary.kv.tokens_used);
  expect_nothing_held(*engine);
}

TEST_P(EngineOfKind, PromptLogprobsEqualTheModelAlone) {
  const EngineOptions options = tiny_options(GetParam());
  auto engine = open_tiny(options);
  const auto prompt = random_prompt(150, 3);
  const auto rows = direct_logits(options, prompt);
  for (int chunk : {0, 1, 37}) {
    const Answer answer = ask(*engine, {.prompt_token_ids = prompt,
                                        .sampling = {.max_tokens = chunk == 1 ? 1 : 0},
                                        .prompt_logprobs = 5,
                                        .prefill_chunk_tokens = chunk});
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.summary.usage.cached_tokens, 0);
    ASSERT_EQ(answer.positions.size(), prompt.size());
    for (size_t p = 0; p < prompt.size(); ++p) {
      const PromptPosition& position = answer.positions[p];
      long double sum = 0;
      for (float x : rows[p]) sum += std::exp(static_cast<long double>(x));
      const auto logsumexp = static_cast<double>(std::log(sum));
      EXPECT_NEAR(position.logsumexp, logsumexp, 1e-10);
      ASSERT_EQ(position.next.has_value(), p + 1 < prompt.size());
      if (position.next) {
        EXPECT_EQ(position.next->token_id, prompt[p + 1]);
        EXPECT_EQ(position.next->logprob, static_cast<float>(rows[p][prompt[p + 1]] - position.logsumexp));
      }
      ASSERT_EQ(position.top.size(), 5u);
      auto sorted = rows[p];
      std::ranges::sort(sorted, std::greater<>());
      for (int k = 0; k < 5; ++k) EXPECT_EQ(rows[p][position.top[k].token_id], sorted[k]);
    }
  }
  expect_nothing_held(*engine);
}

TEST(Engine, LogprobsBelongToTheChosenTokens) {
  const EngineOptions options = tiny_options();
  auto engine = open_tiny(options);
  auto prompt = random_prompt(20, 6);
  const Answer answer = ask(*engine, {.prompt_token_ids = prompt,
                                      .sampling = {.max_tokens = 5, .ignore_eos = true, .logprobs = 3}});
  ASSERT_EQ(answer.logprobs.size(), 5u);
  for (size_t t = 0; t < 5; ++t) {
    const auto row = direct_logits(options, prompt).back();
    long double sum = 0;
    for (float x : row) sum += std::exp(static_cast<long double>(x));
    EXPECT_EQ(answer.logprobs[t].token_id, answer.ids[t]);
    EXPECT_NEAR(answer.logprobs[t].logprob, static_cast<double>(row[answer.ids[t]] - std::log(sum)), 1e-5);
    ASSERT_EQ(answer.tops[t].size(), 3u);
    EXPECT_EQ(answer.tops[t][0].token_id, answer.ids[t]);
    prompt.push_back(answer.ids[t]);
  }
}

// Letters only, so that text and tokens are the same.
SamplingParams letters(int max_tokens, uint64_t seed) {
  SamplingParams sampling{.max_tokens = max_tokens, .temperature = 2, .seed = seed, .ignore_eos = true};
  for (int32_t id = 0; id < kTinyVocab; ++id) {
    if (id < 'a' || id > 'z') sampling.logit_bias.push_back({id, -100.0f});
  }
  return sampling;
}

TEST(Engine, TextIsTheDecodingOfTheTokens) {
  auto engine = open_tiny();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Answer answer =
        ask(*engine, {.prompt_token_ids = {1, 2, 3},
                      .sampling = {.max_tokens = 60, .temperature = 1.5f, .seed = seed, .ignore_eos = true}});
    EXPECT_EQ(answer.text, engine->tokenizer().decode(answer.ids));
    const Answer plain = ask(*engine, {.prompt_token_ids = {9}, .sampling = letters(40, seed)});
    EXPECT_EQ(plain.text, std::string(plain.ids.begin(), plain.ids.end()));
  }
}

TEST(Engine, StopStringsCutTheTextAndEndTheRequest) {
  auto engine = open_tiny();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request{.prompt_token_ids = {9}, .sampling = letters(200, seed)};
    const Answer whole = ask(*engine, request);
    ASSERT_EQ(whole.text.size(), 200u);
    const std::string stop = whole.text.substr(20 + seed, 3);
    const size_t at = whole.text.find(stop);
    request.sampling.stop = {"never this", stop};
    const Answer cut = ask(*engine, request);
    EXPECT_EQ(cut.finish, FinishReason::kStop);
    EXPECT_EQ(cut.text, whole.text.substr(0, at));
    EXPECT_EQ(cut.ids, std::vector<int32_t>(whole.ids.begin(), whole.ids.begin() + at + 3));
  }
  // The rest was cancelled: soon nothing is held, though nobody waits for it.
  for (int i = 0; i < 1000 && engine->stats().running > 0; ++i) std::this_thread::sleep_for(1ms);
  expect_nothing_held(*engine);
}

TEST(Engine, EndAndStopTokensEndWithoutText) {
  auto engine = open_tiny();
  Request request{.prompt_token_ids = {9}, .sampling = letters(50, 1)};
  request.sampling.ignore_eos = false;
  request.sampling.logit_bias = {{kTinyEnd, 100.0f}};
  Answer answer = ask(*engine, request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.ids, std::vector<int32_t>{kTinyEnd});
  EXPECT_EQ(answer.text, "");
  request.sampling.min_tokens = 4;
  answer = ask(*engine, request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.ids.size(), 5u);
  EXPECT_EQ(answer.ids.back(), kTinyEnd);
  request.sampling.ignore_eos = true;
  answer = ask(*engine, request);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(answer.ids.size(), 50u);

  request.sampling = letters(200, 7);
  const Answer whole = ask(*engine, request);
  const int32_t stop = whole.ids[30];
  const auto at = std::ranges::find(whole.ids, stop) - whole.ids.begin();
  request.sampling.stop_token_ids = {stop};
  answer = ask(*engine, request);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.ids, std::vector<int32_t>(whole.ids.begin(), whole.ids.begin() + at + 1));
  EXPECT_EQ(answer.text, whole.text.substr(0, at));
}

TEST(Engine, ZeroTokensComputeThePromptOnly) {
  auto engine = open_tiny();
  const Answer answer =
      ask(*engine, {.prompt_token_ids = random_prompt(70, 1), .sampling = {.max_tokens = 0}});
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_TRUE(answer.ids.empty());
  EXPECT_EQ(answer.summary.kv.tokens_used, 70);
  EXPECT_GT(answer.summary.timings.prefill_tokens_per_s, 0);
  // Its cache serves the next one.
  auto longer = random_prompt(70, 1);
  longer.push_back(5);
  EXPECT_GT(
      ask(*engine, {.prompt_token_ids = longer, .sampling = {.max_tokens = 1}}).summary.usage.cached_tokens,
      0);
}

TEST(Engine, FillsTheContextToItsEnd) {
  auto engine = open_tiny();
  const Answer answer = ask(*engine, {.prompt_token_ids = random_prompt(kTinyContext - 100, 2),
                                      .sampling = {.max_tokens = 100, .ignore_eos = true}});
  EXPECT_EQ(answer.ids.size(), 100u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  const RequestSummary& summary = answer.summary;
  EXPECT_EQ(summary.kv.block_tokens, kDefaultBlockTokens);
  EXPECT_GE(summary.kv.blocks_used * summary.kv.block_tokens, summary.kv.tokens_used);
  EXPECT_GT(summary.timings.ttft_ms, 0);
  EXPECT_GE(summary.timings.total_ms, summary.timings.ttft_ms);
  EXPECT_GE(summary.timings.ttft_ms, summary.timings.queue_ms);
  EXPECT_GT(summary.timings.decode_tokens_per_s, 0);
}

TEST(Engine, TheDoorNamesFieldValueAndLimit) {
  auto engine = open_tiny();
  auto refuse = [&](Request request, ErrorCode code, std::string field, std::vector<std::string> words) {
    auto stream = engine->submit(std::move(request));
    ASSERT_FALSE(stream.has_value()) << field;
    EXPECT_EQ(stream.error().code, code);
    EXPECT_EQ(stream.error().field, field);
    for (const auto& word : words) {
      EXPECT_NE(stream.error().message.find(word), std::string::npos)
          << word << ": " << stream.error().message;
    }
  };
  refuse({}, ErrorCode::kInvalidArgument, "prompt_token_ids", {"empty"});
  refuse({.prompt_token_ids = {0, 260}}, ErrorCode::kInvalidArgument, "prompt_token_ids",
         {"260", "259", "[1]"});
  refuse({.prompt_token_ids = {-1}}, ErrorCode::kInvalidArgument, "prompt_token_ids", {"-1"});
  refuse({.prompt_token_ids = {1}, .sampling = {.temperature = NAN}}, ErrorCode::kInvalidArgument,
         "temperature", {"nan", "100"});
  refuse({.prompt_token_ids = {1}, .sampling = {.logit_bias = {{260, 1.0f}}}}, ErrorCode::kInvalidArgument,
         "logit_bias", {"260"});
  refuse({.prompt_token_ids = {1}, .prompt_logprobs = 101}, ErrorCode::kInvalidArgument, "prompt_logprobs",
         {"101", "100"});
  refuse({.prompt_token_ids = {1}, .prefill_chunk_tokens = -1}, ErrorCode::kInvalidArgument,
         "prefill_chunk_tokens", {"-1"});
  refuse({.prompt_token_ids = random_prompt(500, 1), .sampling = {.max_tokens = 100}},
         ErrorCode::kResourceExhausted, "max_tokens", {"500", "100", "512"});
  refuse({.prompt_token_ids = random_prompt(513, 1)}, ErrorCode::kResourceExhausted, "prompt_token_ids",
         {"513", "512"});
  refuse({.prompt_token_ids = {1}, .sampling = {.max_tokens = std::numeric_limits<int>::max()}},
         ErrorCode::kResourceExhausted, "max_tokens", {"512"});
  EXPECT_EQ(ask(*engine, {.prompt_token_ids = {1}, .sampling = {.max_tokens = 2}}).ids.size(), 2u);
  expect_nothing_held(*engine);
}

TEST(Engine, ASmallPoolRefusesWhatCannotFitAndServesTheRest) {
  EngineOptions options = tiny_options();
  options.kv_bytes = open_tiny()->stats().pools[0].block_bytes * (160 / kDefaultBlockTokens);
  auto engine = open_tiny(options);
  const int blocks = engine->stats().pools[0].total;
  EXPECT_LE(static_cast<uint64_t>(blocks) * engine->stats().pools[0].block_bytes, options.kv_bytes);
  auto refused = engine->submit({.prompt_token_ids = random_prompt(300, 1), .sampling = {.max_tokens = 50}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  std::vector<TokenStream> streams;
  std::vector<Answer> alone;
  for (uint32_t i = 0; i < 6; ++i) {
    const Request request{.prompt_token_ids = random_prompt(20, i),
                          .sampling = {.max_tokens = 40, .ignore_eos = true}};
    alone.push_back(ask(*open_tiny(), request));
    streams.push_back(engine->submit(request).value());
  }
  for (size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(read_all(streams[i]).ids, alone[i].ids);
  expect_nothing_held(*engine);
}

TEST(Engine, TellsWhatItIs) {
  auto engine = open_tiny();
  const ModelInfo& info = engine->model();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.vocab_size, kTinyVocab);
  EXPECT_EQ(info.context_length, kTinyContext);
  EXPECT_EQ(info.layers, 2);
  EXPECT_EQ(info.threads, 2);
  EXPECT_EQ(info.kv_type, "f32");
  // Short blocks are padded, so it may be more.
  EXPECT_GE(info.kv_bytes_per_token, 2u * 2 * 2 * 16 * 4);
  EXPECT_EQ(info.kv_bytes_per_token * kDefaultBlockTokens, engine->stats().pools[0].block_bytes);
  EXPECT_GT(info.weight_bytes, 0u);
  EXPECT_FALSE(info.isa.empty());
  EXPECT_EQ(engine->chat_template(), nullptr);
  EXPECT_FALSE(engine->chat_template_error().has_value());
  EXPECT_EQ(engine->stats().pools[0].total, kTinyContext / kDefaultBlockTokens + 1);
}

}  // namespace
}  // namespace quire
