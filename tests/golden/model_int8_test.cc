// The default arithmetic against the float32 goldens: it may deviate, but no more than llama.cpp does on the
// same file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

// What the rival's own deviation is, over all prompts of a model.
struct Bar {
  double mean_kl = 0;
  double mean_top1 = 0;
  double agreement = 0;
  double largest_margin_flipped = 0;
};

Bar read_bar(const GoldenModel& model) {
  Bar bar;
  double positions = 0;
  boost::json::value json = read_json(shared_path("goldens/" + model.folder + "/llamacpp-agreement.json"));
  for (const boost::json::value& prompt : json.at("prompts").as_array()) {
    auto n = prompt.at("n").to_number<double>();
    positions += n;
    bar.mean_kl += n * prompt.at("mean_top10_kl").to_number<double>();
    bar.mean_top1 += n * prompt.at("mean_abs_dlp_top1").to_number<double>();
    bar.agreement += n * prompt.at("top1_agreement").to_number<double>();
    if (prompt.at("largest_margin_flipped").is_number()) {
      bar.largest_margin_flipped =
          std::max(bar.largest_margin_flipped, prompt.at("largest_margin_flipped").to_number<double>());
    }
  }
  bar.mean_kl /= positions;
  bar.mean_top1 /= positions;
  bar.agreement /= positions;
  if (model.int8_first_position > 0) {  // the goldens' README gives the figures without position 0
    bar.mean_top1 = 0.034;
    bar.agreement = 0.974;
  }
  return bar;
}

class ModelInt8 : public testing::TestWithParam<std::tuple<GoldenModel, KvType>> {};

TEST_P(ModelInt8, DeviatesNoMoreThanLlamaCpp) {
  const auto& [model, kv_type] = GetParam();
  std::string path = model_path(model.file);
  std::string prompts = shared_path("goldens/" + model.folder + "/prompts.jsonl.gz");
  SKIP_WITHOUT(path);
  SKIP_WITHOUT(prompts);
  auto runner = ModelRunner::open(path, {.kv_type = kv_type, .kv_tokens = 1400});
  ASSERT_TRUE(runner.has_value());
  Bar bar = read_bar(model);
  Deviation deviation;
  for (const GoldenPrompt& prompt : read_golden_prompts(prompts)) {
    ASSERT_TRUE((*runner)->reset().has_value());
    TestSequence sequence;
    (*runner)->prefill(
        sequence, prompt.ids, (*runner)->chunk_max(), model.int8_first_position,
        [&](Position position, std::span<const float> logits) { deviation.add(prompt, position, logits); });
    if (kv_type != KvType::kF16) continue;
    // Greedy text of the default mode, forced along the golden path: another choice only where the rival
    // would choose so too.
    for (size_t step = 0; step + 1 < prompt.greedy.ids.size(); ++step) {
      (*runner)->prefill(sequence, {&prompt.greedy.ids[step], 1}, 1, sequence.length,
                         [&](Position, std::span<const float> logits) {
                           if (arg_max(logits) == prompt.greedy.ids[step + 1]) return;
                           EXPECT_LE(prompt.greedy.margin[step + 1], bar.largest_margin_flipped)
                               << prompt.id << " step " << step + 1;
                         });
    }
  }
  fmt::print(
      "{} {}: KL {:.5f} (bar {:.5f}), renormalised KL {:.5f}, same top-1 {:.2f} % ({:.2f} %), "
      "top-1 difference {:.4f} ({:.4f}), largest {:.3f}\n",
      model.folder, kv_type_name(kv_type), deviation.mean_kl(), bar.mean_kl, deviation.mean_kl_normalized(),
      100 * deviation.agreement(), 100 * bar.agreement, deviation.mean_top1(), bar.mean_top1,
      deviation.top1_max);
  EXPECT_LE(deviation.mean_kl(), bar.mean_kl);
  EXPECT_LE(deviation.mean_top1(), bar.mean_top1);
  EXPECT_GE(deviation.agreement(), bar.agreement);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelInt8,
                         testing::Combine(testing::ValuesIn(golden_models()),
                                          testing::Values(KvType::kF32, KvType::kF16)),
                         [](const auto& info) {
                           return golden_name(std::get<0>(info.param)) + "_" +
                                  std::string(kv_type_name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace quire::test
