// Tiny random models, one per peculiarity of an architecture, against float32 answers.
#include <gtest/gtest.h>

#include <memory>

#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

// What float32 implementations differ by on these models (their README).
constexpr double kTolerance = 1e-3;

class ModelArch : public testing::TestWithParam<std::string> {};

std::unique_ptr<ModelRunner> open_arch(const std::string& folder) {
  auto runner =
      ModelRunner::open(shared_path("arch/" + folder + "/model.gguf"),
                        {.arithmetic = Arithmetic::kFloat32, .kv_type = KvType::kF32, .kv_tokens = 256});
  CHECK(runner.has_value());
  return std::move(*runner);
}

TEST_P(ModelArch, LogitsAgreeAtEveryPosition) {
  SKIP_WITHOUT(shared_path("arch/" + GetParam() + "/model.gguf"));
  auto runner = open_arch(GetParam());
  boost::json::value golden = read_json(shared_path("arch/" + GetParam() + "/expected.json"));
  for (const boost::json::value& prompt : golden.at("prompts").as_array()) {
    ASSERT_TRUE(runner->reset().has_value());
    std::vector<TokenId> ids = token_ids(prompt.at("ids"));
    std::vector<TokenId> best = token_ids(prompt.at("argmax"));
    std::vector<double> margin = numbers(prompt.at("margin"));
    std::vector<double> lse = numbers(prompt.at("logsumexp"));
    const boost::json::object& all = prompt.at("logits").as_object();
    TestSequence sequence;
    runner->prefill(sequence, ids, 64, 0, [&](Position position, std::span<const float> logits) {
      EXPECT_NEAR(log_sum_exp(logits), lse[position], kTolerance) << ids.size() << " at " << position;
      if (margin[position] > 2 * kTolerance) EXPECT_EQ(arg_max(logits), best[position]) << position;
      const boost::json::value* values = all.if_contains(std::to_string(position));
      if (values == nullptr) return;
      std::vector<double> expected = numbers(*values);
      ASSERT_EQ(expected.size(), logits.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(logits[i], expected[i], kTolerance) << ids.size() << " at " << position << " token " << i;
      }
    });
    std::vector<TokenId> greedy = token_ids(prompt.at("greedy").at("ids"));
    std::vector<double> margins = numbers(prompt.at("greedy").at("margins"));
    for (size_t step = 0; step + 1 < greedy.size(); ++step) {
      runner->prefill(sequence, {&greedy[step], 1}, 1, sequence.length,
                      [&](Position, std::span<const float> logits) {
                        if (margins[step + 1] > 2 * kTolerance)
                          EXPECT_EQ(arg_max(logits), greedy[step + 1]) << step;
                      });
    }
  }
}

// The exact mode keeps no K or V in less than float32; the default store's half floats move logits a little.
TEST_P(ModelArch, HalfFloatKeysAndValuesMoveLogitsALittle) {
  SKIP_WITHOUT(shared_path("arch/" + GetParam() + "/model.gguf"));
  auto runner = ModelRunner::open(shared_path("arch/" + GetParam() + "/model.gguf"), {.kv_tokens = 256});
  ASSERT_TRUE(runner.has_value());
  boost::json::value golden = read_json(shared_path("arch/" + GetParam() + "/expected.json"));
  const boost::json::value& prompt = golden.at("prompts").as_array().back();
  std::vector<TokenId> ids = token_ids(prompt.at("ids"));
  std::vector<double> lse = numbers(prompt.at("logsumexp"));
  TestSequence sequence;
  (*runner)->prefill(sequence, ids, 64, 0, [&](Position position, std::span<const float> logits) {
    EXPECT_NEAR(log_sum_exp(logits), lse[position], 0.05) << position;
  });
}

INSTANTIATE_TEST_SUITE_P(Folders, ModelArch,
                         testing::Values("llama", "llama-llama3rope", "llama-linear", "qwen2", "gemma3_text"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::test
