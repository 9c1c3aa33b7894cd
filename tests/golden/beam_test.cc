// Beam search of the whole engine, --exact, against what transformers found over float32 weights.
#include <gtest/gtest.h>

#include <memory>

#include "quire/engine.h"
#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"

namespace quire::test {
namespace {

// Of a score, which is a mean over the tokens.
constexpr double kTolerance = 1e-4;

struct Choice {
  std::vector<TokenId> ids;
  FinishReason finish = FinishReason::kNone;
};

class BeamGolden : public testing::TestWithParam<GoldenModel> {};

void expect_beams(Engine& engine, const boost::json::value& golden, const boost::json::value& prompt) {
  const auto& sequences = prompt.at("sequences").as_array();
  auto stream = engine.submit(
      {.prompt_token_ids = token_ids(prompt.at("ids")),
       .sampling = {.max_tokens = golden.at("max_new_tokens").to_number<int>()},
       .n = static_cast<int>(sequences.size()),
       .beam = BeamSearchParams{.width = golden.at("num_beams").to_number<int>(),
                                .length_penalty = golden.at("length_penalty").to_number<float>()}});
  ASSERT_TRUE(stream.has_value()) << stream.error().message;
  std::vector<Choice> choices(sequences.size());
  while (auto event = stream->next()) {
    Choice& choice = choices.at(static_cast<size_t>(event->choice));
    if (event->token_id) choice.ids.push_back(*event->token_id);
    choice.finish = event->finish;
  }
  const RequestSummary summary = stream->summary();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const boost::json::value& expected = sequences[i];
    EXPECT_EQ(choices[i].ids, token_ids(expected.at("ids"))) << prompt.at("id") << " beam " << i;
    EXPECT_EQ(choices[i].finish,
              expected.at("ended_by_eos").as_bool() ? FinishReason::kStop : FinishReason::kLength);
    const double sum = expected.at("sum_logprob").to_number<double>();
    const auto count = expected.at("n").to_number<double>();
    EXPECT_NEAR(*summary.choices[i].score, sum / count, kTolerance) << prompt.at("id") << " beam " << i;
    EXPECT_NEAR(*summary.choices[i].logprob_sum, sum, count * kTolerance);
  }
  EXPECT_LT(summary.kv.blocks_used_max, summary.kv.blocks_as_copies_max);
}

TEST_P(BeamGolden, EqualsTransformers) {
  const std::string path = model_path(GetParam().file);
  const std::string beams = shared_path("goldens/" + GetParam().folder + "/beam.json");
  SKIP_WITHOUT(path);
  SKIP_WITHOUT(beams);
  auto engine = Engine::open({.model_path = path, .kv_type = "f32", .exact = true, .context_length = 1024});
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  const boost::json::value golden = read_json(beams);
  EXPECT_FALSE(golden.at("early_stopping").as_bool());
  for (const boost::json::value& prompt : golden.at("prompts").as_array())
    expect_beams(**engine, golden, prompt);
}

std::vector<GoldenModel> models_with_beams() {
  std::vector<GoldenModel> models = golden_models();
  std::erase_if(models, [](const GoldenModel& model) {
    return std::string(model.folder) != "smollm2-135m" && std::string(model.folder) != "qwen2.5-coder-0.5b";
  });
  return models;
}

INSTANTIATE_TEST_SUITE_P(Goldens, BeamGolden, testing::ValuesIn(models_with_beams()),
                         [](const auto& info) { return golden_name(info.param); });

}  // namespace
}  // namespace quire::test
