// Perplexity of WikiText-2 windows against the goldens, by the method of their README.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>

#include "engine/model_package.h"
#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

struct WindowSums {
  double nll = 0;
  double expected = 0;
  int predictions = 0;

  // perplexity / recorded perplexity - 1
  [[nodiscard]] double excess() const { return std::expm1((nll - expected) / predictions); }
};

class ModelPerplexity : public testing::TestWithParam<GoldenModel> {
 protected:
  // The whole text in one piece, as the recorded ids were made. More bytes a token than any text here has
  // bound what is read.
  std::vector<TokenId> text_ids(const GgufFile& file, int windows, int window) {
    auto tokenizer = tokenizer_of(file);
    CHECK(tokenizer.has_value());
    std::ifstream input(shared_path("text/wikitext-2/wiki.test.raw"), std::ios::binary);
    std::ostringstream text;
    text << input.rdbuf();
    constexpr size_t kTokenBytesMax = 16;
    std::string part = text.str().substr(0, static_cast<size_t>(windows) * window * kTokenBytesMax);
    auto ids = (*tokenizer)->encode_prompt(part, SpecialTokens::kParse);
    CHECK(ids.has_value());
    return *ids;
  }

  WindowSums evaluate(const RunnerOptions& options, int windows) {
    boost::json::value golden = read_json(shared_path("goldens/" + GetParam().folder + "/ppl.json"));
    auto window = golden.at("window").to_number<int>();
    std::vector<double> expected = numbers(golden.at("window_nll_sum_all"));
    auto file = GgufFile::open(model_path(GetParam().file));
    CHECK(file.has_value());
    std::vector<TokenId> ids = text_ids(*file, windows, window);
    std::vector<TokenId> first = token_ids(golden.at("ids_first_window"));
    EXPECT_TRUE(std::ranges::equal(first, std::span(ids).first(first.size())))
        << "the text's token ids differ";
    bool bos = golden.at("first_token_replaced_by_bos").as_bool();
    auto runner = ModelRunner::open(*file, options);
    CHECK(runner.has_value());
    WindowSums sums;
    for (int index = 0; index < windows; ++index) {
      std::vector<TokenId> part(ids.begin() + index * window, ids.begin() + (index + 1) * window);
      if (bos) part[0] = first[0];
      CHECK((*runner)->reset().has_value());
      TestSequence sequence;
      double nll = 0;
      (*runner)->prefill(sequence, part, (*runner)->chunk_max(), 0,
                         [&](Position position, std::span<const float> logits) {
                           if (position + 1 == window) return;
                           nll += log_sum_exp(logits) - logits[part[position + 1]];
                         });
      sums.nll += nll;
      sums.expected += expected[index];
      sums.predictions += window - 1;
    }
    fmt::print("{}: {} windows, perplexity {:.4f}, recorded {:.4f}, excess {:+.4f} %\n", GetParam().folder,
               windows, std::exp(sums.nll / sums.predictions), std::exp(sums.expected / sums.predictions),
               100 * sums.excess());
    return sums;
  }
};

TEST_P(ModelPerplexity, ExactModeReachesTheRecordedOne) {
  SKIP_WITHOUT(model_path(GetParam().file));
  SKIP_WITHOUT(shared_path("goldens/" + GetParam().folder + "/ppl.json"));
  WindowSums sums = evaluate({.arithmetic = Arithmetic::kFloat32, .kv_type = KvType::kF32, .kv_tokens = 512},
                             GetParam().exact_windows);
  EXPECT_LT(std::abs(sums.excess()), 2e-4);
}

TEST_P(ModelPerplexity, DefaultModeStaysWithinOnePercent) {
  SKIP_WITHOUT(model_path(GetParam().file));
  SKIP_WITHOUT(shared_path("goldens/" + GetParam().folder + "/ppl.json"));
  WindowSums sums = evaluate({.kv_tokens = 512}, GetParam().int8_windows);
  EXPECT_LT(std::abs(sums.excess()), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelPerplexity, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return golden_name(info.param); });

}  // namespace
}  // namespace quire::test
