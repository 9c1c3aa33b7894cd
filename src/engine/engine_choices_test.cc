// Several answers to one prompt: samples, the best of more, beams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/beam_reference.h"
#include "engine/tiny_engine.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

EngineOptions roomy(TinyKind kind = TinyKind::kFull) {
  EngineOptions options = tiny_options(kind);
  options.kv_bytes = 8 << 20;
  return options;
}

class Choices : public testing::TestWithParam<TinyKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Choices, testing::Values(TinyKind::kFull, TinyKind::kWindowed));

Request sampled(int prompt_tokens, uint32_t seed, int max_tokens) {
  return {.prompt_token_ids = random_prompt(prompt_tokens, seed),
          .sampling = {.max_tokens = max_tokens,
                       .temperature = 1,
                       .logit_bias = {{kTinyBroken, -100.0f}},
                       .seed = 1000 + seed,
                       .logprobs = 1}};
}

void expect_same(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.finish, b.finish);
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
  for (size_t t = 0; t < a.logprobs.size(); ++t) EXPECT_EQ(a.logprobs[t].logprob, b.logprobs[t].logprob);
}

TEST_P(Choices, SampleIIsTheRequestWithItsSeed) {
  auto engine = open_tiny(roomy(GetParam()));
  for (int prompt : {1, 31, 32, 70}) {
    Request request = sampled(prompt, static_cast<uint32_t>(prompt), 40);
    std::vector<Answer> alone;
    for (uint64_t i = 0; i < 5; ++i) {
      Request one = request;
      *one.sampling.seed += i;
      alone.push_back(ask(*open_tiny(roomy(GetParam())), one));
    }
    request.n = 5;
    const std::vector<Answer> together = ask_choices(*engine, request);
    ASSERT_EQ(together.size(), 5u);
    for (size_t i = 0; i < 5; ++i) expect_same(together[i], alone[i]);
    EXPECT_NE(together[0].ids, together[1].ids);
  }
  expect_nothing_held(*engine);
}

TEST_P(Choices, OnePrefillAndSharedBlocks) {
  auto engine = open_tiny(roomy(GetParam()));
  Request request = sampled(101, 1, 40);
  request.sampling.ignore_eos = true;
  request.n = 4;
  const uint64_t rows_before = engine->stats().rows;
  const RequestSummary summary = ask_choices(*engine, request)[0].summary;
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.rows - rows_before, 101u + 4 * 39);
  EXPECT_EQ(stats.prompt_tokens, 101u);
  EXPECT_EQ(stats.completion_tokens, 160u);
  // The last token is never computed. A partial prompt block, and what lies behind it, is each sample's own.
  const int groups = static_cast<int>(stats.pools.size());
  const int prompt_blocks = 101 / kDefaultBlockTokens + 1;
  const int own_blocks = (39 + kDefaultBlockTokens - 1) / kDefaultBlockTokens;
  EXPECT_LE(summary.kv.blocks_used_max, groups * (prompt_blocks + 4 * (own_blocks + 1)));
  EXPECT_LT(summary.kv.blocks_used_max, summary.kv.blocks_as_copies_max);
  if (GetParam() == TinyKind::kFull)
    EXPECT_GE(summary.kv.blocks_as_copies_max, 4 * ((140 + kDefaultBlockTokens - 1) / kDefaultBlockTokens));
  EXPECT_GE(stats.block_copies, 3u);
  expect_nothing_held(*engine);
}

TEST_P(Choices, BestOfReturnsTheMostProbableOnes) {
  auto engine = open_tiny(roomy(GetParam()));
  Request request = sampled(20, 7, 12);
  request.n = 6;
  const std::vector<Answer> all = ask_choices(*engine, request);
  std::vector<std::pair<double, std::string>> means;
  for (const Answer& answer : all) {
    double sum = 0;
    for (const TokenLogprob& token : answer.logprobs) sum += static_cast<double>(token.logprob);
    means.push_back({-sum / static_cast<double>(answer.ids.size()), answer.text});
  }
  std::ranges::stable_sort(means, {}, [](const auto& mean) { return mean.first; });
  request.n = 2;
  request.best_of = 6;
  request.sampling.logprobs = std::nullopt;
  const std::vector<Answer> best = ask_choices(*engine, request);
  ASSERT_EQ(best.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(best[i].text, means[i].second);
    EXPECT_NEAR(*best[i].summary.choices[i].score, -means[i].first, 1e-6);
    EXPECT_TRUE(best[i].logprobs.empty());
  }
  EXPECT_EQ(best[0].summary.usage.completion_tokens,
            static_cast<int>(best[0].ids.size() + best[1].ids.size()));
  expect_nothing_held(*engine);
}

Request letters(int n, uint64_t seed) {
  Request request{.prompt_token_ids = {9},
                  .sampling = {.max_tokens = 120, .temperature = 2, .seed = seed, .ignore_eos = true},
                  .n = n};
  for (int32_t id = 0; id < kTinyVocab; ++id)
    if (id < 'a' || id > 'z') request.sampling.logit_bias.push_back({id, -100.0f});
  return request;
}

// A stop string ends its choice; the others go on.
TEST(EngineChoices, StopStringsEndOneChoice) {
  auto engine = open_tiny(roomy());
  Request request = letters(3, 5);
  const std::vector<Answer> whole = ask_choices(*engine, request);
  const std::string stop = whole[1].text.substr(10, 3);
  request.sampling.stop = {stop};
  const std::vector<Answer> cut = ask_choices(*engine, request);
  for (size_t i = 0; i < 3; ++i) {
    const size_t at = whole[i].text.find(stop);
    EXPECT_EQ(cut[i].text, whole[i].text.substr(0, at));
    EXPECT_EQ(cut[i].finish, at == std::string::npos ? FinishReason::kLength : FinishReason::kStop);
  }
  // Ranked ones are cut by the engine: the same texts.
  request.n = 1;
  request.best_of = 3;
  const Answer best = ask_choices(*engine, request)[0];
  EXPECT_TRUE(best.text == cut[0].text || best.text == cut[1].text || best.text == cut[2].text);
  for (int i = 0; i < 1000 && engine->stats().running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect_nothing_held(*engine);
}

TEST(EngineChoices, EveryChoiceHasItsEndAtZeroOrOneToken) {
  auto engine = open_tiny(roomy());
  for (int max_tokens : {0, 1}) {
    for (int best_of : {0, 4}) {
      Request request = sampled(40, 2, max_tokens);
      request.n = 3;
      request.best_of = best_of;
      for (const Answer& answer : ask_choices(*engine, request))
        EXPECT_EQ(answer.ids.size(), static_cast<size_t>(max_tokens));
    }
    Request request{.prompt_token_ids = {1, 2}, .sampling = {.max_tokens = max_tokens}, .n = 3};
    request.beam = BeamSearchParams{.width = 3};
    for (const Answer& answer : ask_choices(*engine, request))
      EXPECT_EQ(answer.ids.size(), static_cast<size_t>(max_tokens));
  }
  expect_nothing_held(*engine);
}

// A choice whose first token is an end never lives; the others do.
TEST(EngineChoices, AnEndAtTheFirstTokenLeavesTheOthers) {
  auto engine = open_tiny(roomy());
  Request request = sampled(33, 3, 20);
  request.sampling.temperature = 3;
  request.sampling.logit_bias.push_back({kTinyEnd, 4.0f});
  request.n = 16;
  int ended_at_once = 0;
  const std::vector<Answer> together = ask_choices(*engine, request);
  for (size_t i = 0; i < together.size(); ++i) {
    ended_at_once += together[i].ids.size() == 1 ? 1 : 0;
    Request one = request;
    one.n = 1;
    *one.sampling.seed += i;
    expect_same(together[i], ask(*engine, one));
  }
  EXPECT_GT(ended_at_once, 0);
  EXPECT_LT(ended_at_once, 16);
  expect_nothing_held(*engine);
}

// What the model says after prompt and tokens, from a prefill of its own; tokens beyond the 100 best are left
// out, which no beam of these widths reaches.
std::vector<double> logprobs_after(Engine& engine, std::vector<int32_t> ids) {
  const Answer answer = ask(
      engine, {.prompt_token_ids = std::move(ids), .sampling = {.max_tokens = 0}, .prompt_logprobs = 100});
  std::vector<double> logprobs(kTinyVocab, -1e6);
  for (const TokenLogprob& top : answer.positions.back().top)
    logprobs[static_cast<size_t>(top.token_id)] = static_cast<double>(top.logprob);
  return logprobs;
}

TEST_P(Choices, BeamsEqualTheReferenceOverFullRecomputation) {
  auto engine = open_tiny(roomy(GetParam()));
  auto oracle = open_tiny(roomy(GetParam()));
  const std::vector<BeamSearchParams> kinds = {
      {.width = 4},
      {.width = 3, .length_penalty = 0, .early_stopping = EarlyStopping::kWhenFull},
      {.width = 4, .length_penalty = 2, .early_stopping = EarlyStopping::kNever},
      {.width = 6, .groups = 3, .diversity_penalty = 0.7f}};
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto prompt = random_prompt(25 + 10 * static_cast<int>(k), static_cast<uint32_t>(k));
    std::map<ReferenceTokens, std::vector<double>> seen;
    const auto next = [&](const ReferenceTokens& tokens) {
      auto [at, is_new] = seen.try_emplace(tokens);
      if (is_new) {
        auto ids = prompt;
        ids.insert(ids.end(), tokens.begin(), tokens.end());
        at->second = logprobs_after(*oracle, ids);
      }
      return at->second;
    };
    // The likeliest first token is an end, so that sequences of many lengths compete.
    const auto first = next({});
    const auto end = static_cast<TokenId>(std::ranges::max_element(first) - first.begin());
    const auto expected = BeamReference(kinds[k], 12,
                                        {.next = next,
                                         .has_ended =
                                             [&](const ReferenceTokens& tokens) {
                                               return tokens.back() == end || tokens.back() == kTinyEnd ||
                                                      tokens.back() == kTinyBroken;
                                             }})
                              .run();
    Request request{.prompt_token_ids = prompt,
                    .sampling = {.max_tokens = 12, .stop_token_ids = {end, kTinyBroken}, .logprobs = 0},
                    .n = kinds[k].width,
                    .beam = kinds[k]};
    const std::vector<Answer> answers = ask_choices(*engine, request);
    std::multiset<ReferenceTokens> ids, expected_ids;
    for (const Answer& answer : answers) ids.insert(answer.ids);
    for (const auto& group : expected)
      for (const ReferenceResult& result : group) expected_ids.insert(result.tokens);
    EXPECT_EQ(ids, expected_ids) << k;
    const RequestSummary& summary = answers[0].summary;
    if (kinds[k].groups == 1)
      for (size_t i = 0; i < answers.size(); ++i)
        EXPECT_NEAR(*summary.choices[i].score, expected[0][i].score, 1e-4);
    EXPECT_LE(summary.kv.blocks_used_max, summary.kv.blocks_as_copies_max);
  }
  expect_nothing_held(*engine);
}

TEST(EngineChoices, BeamsEndAtStopStringsAndShareTheirBlocks) {
  auto engine = open_tiny(roomy());
  Request request = letters(4, 1);
  request.sampling.temperature = 0;
  request.beam = BeamSearchParams{.width = 4, .early_stopping = EarlyStopping::kNever};
  request.prompt_token_ids = random_prompt(200, 8);
  const std::vector<Answer> whole = ask_choices(*engine, request);
  const RequestKv kv = whole[0].summary.kv;
  EXPECT_LT(kv.blocks_used_max, kv.blocks_as_copies_max);
  const std::string stop = whole[0].text.substr(8, 2);
  request.sampling.stop = {stop};
  int stopped = 0;
  for (const Answer& answer : ask_choices(*engine, request)) {
    EXPECT_EQ(answer.text.find(stop), std::string::npos);
    stopped += answer.finish == FinishReason::kStop ? 1 : 0;
    EXPECT_EQ(answer.finish == FinishReason::kStop,
              std::string(answer.ids.begin(), answer.ids.end()).find(stop) != std::string::npos);
  }
  EXPECT_GT(stopped, 0);
  expect_nothing_held(*engine);
}

TEST(EngineChoices, SaltsSeparateCaches) {
  auto engine = open_tiny(roomy());
  Request request{.prompt_token_ids = random_prompt(100, 1), .sampling = {.max_tokens = 1}};
  ask(*engine, request);
  EXPECT_EQ(ask(*engine, request).summary.usage.cached_tokens, 99);
  request.cache_salt = "a tenant";
  EXPECT_EQ(ask(*engine, request).summary.usage.cached_tokens, 0);
  EXPECT_EQ(ask(*engine, request).summary.usage.cached_tokens, 99);
  request.cache_salt = "another";
  EXPECT_EQ(ask(*engine, request).summary.usage.cached_tokens, 0);
}

TEST(EnginePins, APinnedPrefixOutlivesALoad) {
  EngineOptions options = tiny_options();
  options.pinned_tokens_max = 128;
  auto engine = open_tiny(options);
  const auto prompt = random_prompt(100, 1);
  const auto pin = engine->pin_prefix({.prompt_token_ids = prompt});
  ASSERT_TRUE(pin.has_value()) << pin.error().message;
  EXPECT_EQ(engine->stats().pins, 1);
  auto flood = [&] {
    for (uint32_t i = 2; i < 12; ++i)
      ask(*engine, {.prompt_token_ids = random_prompt(400, i), .sampling = {.max_tokens = 1}});
  };
  auto cached = [&] {
    const Request request{.prompt_token_ids = prompt, .sampling = {.max_tokens = 1}};
    return ask(*engine, request).summary.usage.cached_tokens;
  };
  flood();
  EXPECT_GE(cached(), 96);
  const auto refused = engine->pin_prefix({.prompt_token_ids = random_prompt(100, 50)});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(engine->unpin_prefix(*pin).has_value());
  EXPECT_FALSE(engine->unpin_prefix(*pin).has_value());
  flood();
  EXPECT_EQ(cached(), 0);
  // One whose time is over is let go of before the next request.
  ASSERT_TRUE(engine->pin_prefix({.prompt_token_ids = prompt, .ttl_ms = 1}).has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  flood();
  EXPECT_EQ(cached(), 0);
  EXPECT_EQ(engine->stats().pins, 0);
  EXPECT_EQ(engine->pin_prefix({.prompt_token_ids = prompt, .ttl_ms = 0}).error().field, "ttl_ms");
  EXPECT_EQ(engine->pin_prefix({.prompt_token_ids = {1}}).error().field, "prompt_token_ids");
}

TEST(EngineChoices, TheDoorNamesFieldValueAndLimit) {
  auto engine = open_tiny(roomy());
  auto refuse = [&](Request request, std::string field, std::vector<std::string> words) {
    request.prompt_token_ids = {1};
    auto stream = engine->submit(std::move(request));
    ASSERT_FALSE(stream.has_value()) << field;
    EXPECT_EQ(stream.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(stream.error().field, field);
    for (const auto& word : words)
      EXPECT_NE(stream.error().message.find(word), std::string::npos)
          << word << ": " << stream.error().message;
  };
  refuse({.n = 0}, "n", {"0", "128"});
  refuse({.n = 1000000}, "n", {"1000000", "128"});
  refuse({.n = 4, .best_of = 3}, "best_of", {"3", "4"});
  refuse({.n = 4, .best_of = -1}, "best_of", {"-1"});
  refuse({.best_of = 129}, "best_of", {"129", "128"});
  refuse({.priority = 101}, "priority", {"101", "100"});
  refuse({.priority = -101}, "priority", {"-101", "-100"});
  refuse({.cache_salt = std::string(257, 'x')}, "cache_salt", {"257", "256"});
  refuse({.beam = BeamSearchParams{.width = 0}}, "beam_width", {"0", "64"});
  refuse({.beam = BeamSearchParams{.width = 65}}, "beam_width", {"65", "64"});
  refuse({.n = 5, .beam = BeamSearchParams{}}, "n", {"5", "4"});
  refuse({.best_of = 4, .beam = BeamSearchParams{}}, "best_of", {"4"});
  refuse({.beam = BeamSearchParams{.length_penalty = NAN}}, "length_penalty", {"nan", "10"});
  refuse({.beam = BeamSearchParams{.groups = 3}}, "beam_groups", {"3", "4"});
  refuse({.beam = BeamSearchParams{.groups = 0}}, "beam_groups", {"0"});
  refuse({.beam = BeamSearchParams{.groups = 2, .diversity_penalty = -1}}, "diversity_penalty", {"-1"});
  refuse({.beam = BeamSearchParams{.diversity_penalty = 1}}, "diversity_penalty", {"1"});
  refuse({.sampling = {.temperature = 1}, .beam = BeamSearchParams{}}, "temperature", {"1", "beam"});
  refuse({.sampling = {.top_k = 5}, .beam = BeamSearchParams{}}, "top_k", {"5"});
  EngineOptions options = tiny_options();
  options.itl_target_ms = -1;
  auto opened = Engine::open(options);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().field, "itl_target_ms");
}

}  // namespace
}  // namespace quire
