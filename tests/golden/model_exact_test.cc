// --exact against the float32 goldens: every position, and the greedy continuation.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

constexpr double kTolerance = 1e-3;

class ModelExact : public testing::TestWithParam<GoldenModel> {};

std::unique_ptr<ModelRunner> open_exact(const std::string& path) {
  auto runner = ModelRunner::open(
      path, {.arithmetic = Arithmetic::kFloat32, .kv_type = KvType::kF32, .kv_tokens = 1400});
  CHECK(runner.has_value());
  return std::move(*runner);
}

void expect_position(const GoldenPrompt& prompt, Position position, std::span<const float> logits) {
  double lse = log_sum_exp(logits);
  ASSERT_NEAR(lse, prompt.lse[position], kTolerance) << prompt.id << " position " << position;
  for (size_t i = 0; i < prompt.top_ids[position].size(); ++i) {
    ASSERT_NEAR(logits[prompt.top_ids[position][i]] - lse, prompt.top_lp[position][i], kTolerance)
        << prompt.id << " position " << position << " rank " << i;
  }
  if (static_cast<size_t>(position) < prompt.next_lp.size()) {
    ASSERT_NEAR(logits[prompt.ids[position + 1]] - lse, prompt.next_lp[position], kTolerance)
        << prompt.id << " position " << position;
  }
}

// The golden path is forced, so that every step is compared; a different choice needs a near tie.
void expect_greedy_step(const GoldenPrompt& prompt, int step, std::span<const float> logits) {
  const GoldenGreedy& greedy = prompt.greedy;
  ASSERT_NEAR(logits[greedy.ids[step]] - log_sum_exp(logits), greedy.lp[step], kTolerance)
      << prompt.id << " step " << step;
  if (greedy.margin[step] >= kTolerance) {
    ASSERT_EQ(arg_max(logits), greedy.ids[step])
        << prompt.id << " step " << step << " margin " << greedy.margin[step];
  }
}

TEST_P(ModelExact, AgreesWithFloat32AtEveryPosition) {
  std::string path = model_path(GetParam().file);
  std::string prompts = shared_path("goldens/" + GetParam().folder + "/prompts.jsonl.gz");
  SKIP_WITHOUT(path);
  SKIP_WITHOUT(prompts);
  auto runner = open_exact(path);
  int positions = 0;
  for (const GoldenPrompt& prompt : read_golden_prompts(prompts)) {
    ASSERT_TRUE(runner->reset().has_value());
    // Prompt and forced continuation in chunks of one size, of no use to any kernel's blocking.
    std::vector<TokenId> ids = prompt.ids;
    ids.insert(ids.end(), prompt.greedy.ids.begin(), prompt.greedy.ids.end() - 1);
    auto length = static_cast<Position>(prompt.ids.size());
    TestSequence sequence;
    runner->prefill(sequence, ids, 201, 0, [&](Position position, std::span<const float> logits) {
      if (testing::Test::HasFatalFailure()) return;
      if (position < length) expect_position(prompt, position, logits);
      if (position >= length - 1) expect_greedy_step(prompt, position - length + 1, logits);
      ++positions;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(positions, 1000);
  RecordProperty("positions", positions);
}

TEST_P(ModelExact, DecodesTheGreedyContinuation) {
  std::string path = model_path(GetParam().file);
  std::string prompts = shared_path("goldens/" + GetParam().folder + "/prompts.jsonl.gz");
  SKIP_WITHOUT(path);
  SKIP_WITHOUT(prompts);
  auto runner = open_exact(path);
  GoldenPrompt prompt = read_golden_prompts(prompts).at(3);
  TestSequence sequence;
  TokenId next = -1;
  auto choose = [&](Position, std::span<const float> logits) { next = arg_max(logits); };
  auto last = static_cast<Position>(prompt.ids.size()) - 1;
  runner->prefill(sequence, prompt.ids, runner->chunk_max(), last, choose);
  for (size_t step = 0; step < prompt.greedy.ids.size(); ++step) {
    ASSERT_TRUE(next == prompt.greedy.ids[step] || prompt.greedy.margin[step] < kTolerance)
        << "step " << step;
    if (next != prompt.greedy.ids[step]) return;
    runner->prefill(sequence, {&next, 1}, 1, sequence.length, choose);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelExact, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return golden_name(info.param); });

}  // namespace
}  // namespace quire::test
