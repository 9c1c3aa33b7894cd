// The determinism duty, seen from outside: whatever the cache holds, however a prompt is cut, whoever runs
// beside it, preempted or not, forked or alone: the same tokens and the same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tiny_model.h"
#include "tests/data_paths.h"
#include "tests/property/engine_answers.h"

namespace quire::test {
namespace {

constexpr const char* kSmollm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr int kBlockTokens = 32;

// Requests of one prefix family and of none, greedy and drawn.
std::vector<Request> requests_of(std::mt19937& random, int vocab_size, int max_tokens) {
  const auto stem = random_prompt(random, 70, vocab_size);
  std::vector<Request> requests;
  // Whoever reads the tiny models' broken token gets no sane logits.
  std::vector<std::pair<int32_t, float>> bias;
  if (vocab_size < kTinyVocab) bias.push_back({kTinyBroken, -100.0f});
  for (uint64_t i = 0; i < 8; ++i) {
    Request request{
        .prompt_token_ids = random_prompt(random, 1 + static_cast<int>(random() % 90), vocab_size),
        .sampling = {.max_tokens = max_tokens,
                     .temperature = i % 2 == 0 ? 0.0f : 0.9f,
                     .logit_bias = bias,
                     .seed = i,
                     .ignore_eos = true,
                     .logprobs = 3}};
    if (i % 2 == 1) {
      const auto cut = static_cast<std::ptrdiff_t>(20 + random() % 51);
      request.prompt_token_ids.insert(request.prompt_token_ids.begin(), stem.begin(), stem.begin() + cut);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Each alone, in an engine that nobody has used.
std::vector<Answered> answers_alone(const EngineOptions& options, const std::vector<Request>& requests) {
  std::vector<Answered> alone;
  for (const Request& request : requests)
    alone.push_back(answer(*open_engine(options), request).choices.front());
  return alone;
}

struct Circumstances {
  int threads = 2;
  int step_tokens_max = 512;
  int kv_blocks = 0;  // of kBlockTokens; 0 = plenty
  int chunk = 0;
  int rounds = 1;
  int n = 1;  // of the drawn ones
};

class EngineSameness {
 public:
  EngineSameness(EngineOptions options, std::vector<Request> requests)
      : options_(std::move(options)),
        requests_(std::move(requests)),
        alone_(answers_alone(options_, requests_)) {
    for (const PoolStats& pool : open_engine(options_)->stats().pools) block_bytes_ += pool.block_bytes;
  }

  EngineStats expect_same(const Circumstances& c, std::mt19937& random) {
    EngineOptions options = options_;
    options.threads = c.threads;
    options.step_tokens_max = c.step_tokens_max;
    const int blocks = (c.kv_blocks > 0 ? c.kv_blocks : 400) * (kBlockTokens / kDefaultBlockTokens);
    options.kv_bytes = block_bytes_ * static_cast<uint64_t>(blocks);
    auto engine = open_engine(options);
    std::vector<size_t> order;
    for (int round = 0; round < c.rounds; ++round)
      for (size_t i = 0; i < requests_.size(); ++i) order.push_back(i);
    std::ranges::shuffle(order, random);
    std::vector<TokenStream> streams;
    for (size_t i : order) {
      Request request = requests_[i];
      request.prefill_chunk_tokens = c.chunk;
      request.priority = static_cast<int>(random() % 3);
      if (request.sampling.temperature > 0) request.n = c.n;
      streams.push_back(submit(*engine, request));
    }
    for (size_t s = 0; s < streams.size(); ++s) {
      const AnsweredRequest answers = read_answers(streams[s]);
      // The first sample has the seed of the request alone.
      EXPECT_EQ(answers.choices.front(), alone_[order[s]]) << "request " << order[s];
    }
    expect_pools_whole(*engine);
    return engine->stats();
  }

 private:
  const EngineOptions options_;
  const std::vector<Request> requests_;
  const std::vector<Answered> alone_;
  uint64_t block_bytes_ = 0;
};

class TinyEngineSameness : public testing::TestWithParam<TinyKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TinyEngineSameness, testing::Values(TinyKind::kFull, TinyKind::kWindowed));

TEST_P(TinyEngineSameness, UnderRandomCircumstances) {
  uint64_t preemptions = 0, evictions = 0, hits = 0;
  for (const char* kv_type : {"f32", "f16"}) {
    for (const bool exact : {true, false}) {
      std::mt19937 random(exact ? 11 : 12);
      EngineSameness sameness(
          {.model_path = tiny_model_path(GetParam()), .threads = 2, .kv_type = kv_type, .exact = exact},
          requests_of(random, kTinyVocab - 4, 100));
      for (int trial = 0; trial < 10; ++trial) {
        const EngineStats stats =
            sameness.expect_same({.threads = 1 + static_cast<int>(random() % 3),
                                  .step_tokens_max = 8 + static_cast<int>(random() % 120),
                                  .kv_blocks = trial % 2 == 0 ? 0 : 28 + static_cast<int>(random() % 8),
                                  .chunk = trial % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 60),
                                  .rounds = 1 + static_cast<int>(random() % 3),
                                  .n = 1 + static_cast<int>(random() % 3)},
                                 random);
        preemptions += stats.preemptions;
        evictions += stats.evictions;
        hits += stats.cached_tokens;
      }
    }
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(evictions, 0u);
  EXPECT_GT(hits, 0u);
}

TEST(RealEngineSameness, UnderChosenCircumstances) {
  const std::string path = model_path(kSmollm2);
  SKIP_WITHOUT(path);
  std::mt19937 random(5);
  EngineSameness sameness({.model_path = path, .context_length = 512}, requests_of(random, 40000, 24));
  sameness.expect_same({.chunk = 7, .n = 2}, random);
  sameness.expect_same({.threads = 1, .step_tokens_max = 40}, random);
  const EngineStats small = sameness.expect_same({.kv_blocks = 12, .rounds = 2}, random);
  EXPECT_GT(small.evictions, 0u);
}

// Requests that grow past what admission foresees.
TEST(RealEngineSameness, PreemptedAndResumed) {
  const std::string path = model_path(kSmollm2);
  SKIP_WITHOUT(path);
  std::mt19937 random(6);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 3; ++i)
    requests.push_back(
        {.prompt_token_ids = random_prompt(random, 10, 40000),
         .sampling = {.max_tokens = 110, .temperature = 1, .seed = i, .ignore_eos = true, .logprobs = 3}});
  EngineSameness sameness({.model_path = path, .context_length = 256}, requests);
  EXPECT_GT(sameness.expect_same({.kv_blocks = 9}, random).preemptions, 0u);
}

TEST(RealEngineSameness, TwoHundredPromptsColdAndWarm) {
  const std::string path = model_path(kSmollm2);
  SKIP_WITHOUT(path);
  const uint64_t block_bytes =
      open_engine({.model_path = path, .context_length = 64})->stats().pools[0].block_bytes;
  auto engine = open_engine({.model_path = path, .context_length = 64, .kv_bytes = block_bytes * 900});
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (int i = 0; i < 200; ++i)
    requests.push_back({.prompt_token_ids = random_prompt(random, kBlockTokens, 40000),
                        .sampling = {.max_tokens = 2, .ignore_eos = true, .logprobs = 5}});
  std::vector<AnsweredRequest> rounds[2];
  uint64_t rows[2] = {};
  for (int round = 0; round < 2; ++round) {
    const uint64_t before = engine->stats().rows;
    std::vector<TokenStream> streams;
    for (const Request& request : requests) streams.push_back(submit(*engine, request));
    for (TokenStream& stream : streams) rounds[round].push_back(read_answers(stream));
    rows[round] = engine->stats().rows - before;
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(rounds[0][i].choices, rounds[1][i].choices) << i;
    EXPECT_EQ(rounds[0][i].summary.usage.cached_tokens, 0);
    EXPECT_EQ(rounds[1][i].summary.usage.cached_tokens, kBlockTokens - 1);
  }
  // Of two tokens one is computed; of a warm prompt exactly one.
  EXPECT_EQ(rows[0], 200u * (kBlockTokens + 1));
  EXPECT_EQ(rows[1], 200u * (1 + 1));
  expect_pools_whole(*engine);
}

}  // namespace
}  // namespace quire::test
