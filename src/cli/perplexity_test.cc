#include "cli/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace quire {
namespace {

std::vector<PromptPosition> positions_of(const std::vector<float>& next_logprobs) {
  std::vector<PromptPosition> positions;
  for (float logprob : next_logprobs) positions.push_back({.next = TokenLogprob{1, logprob}});
  positions.push_back({});  // nothing follows the last token
  return positions;
}

TEST(Perplexity, CutsWindowsWithoutOverlap) {
  std::vector<TokenId> text(11);
  std::iota(text.begin(), text.end(), 100);
  WindowPlan plan{.window = 4, .bos = std::nullopt};
  EXPECT_EQ(plan.count(text.size()), 2);
  EXPECT_EQ(plan.tokens(text, 0), (std::vector<TokenId>{100, 101, 102, 103}));
  EXPECT_EQ(plan.tokens(text, 1), (std::vector<TokenId>{104, 105, 106, 107}));
  plan.bos = 2;
  EXPECT_EQ(plan.tokens(text, 1), (std::vector<TokenId>{2, 105, 106, 107}));
}

// Of 512 tokens the goldens count 511 predictions, and 255 (tokens 257 … 511) in the second half.
TEST(Perplexity, CountsThePredictionsOfTheGoldens) {
  WindowScore score = score_window(positions_of(std::vector<float>(511, -1.0f)));
  EXPECT_EQ(score.all.predictions, 511);
  EXPECT_EQ(score.second_half.predictions, 255);
  EXPECT_DOUBLE_EQ(score.all.mean(), 1.0);
  EXPECT_DOUBLE_EQ(score.all.perplexity(), std::exp(1.0));
}

TEST(Perplexity, SumsTheRightHalf) {
  WindowScore score = score_window(positions_of({-1, -2, -4, -8, -16, -32, -64}));
  EXPECT_DOUBLE_EQ(score.all.sum, 127);
  EXPECT_DOUBLE_EQ(score.second_half.sum, 16 + 32 + 64);
}

TEST(Perplexity, OfNothingIsOne) {
  EXPECT_DOUBLE_EQ(NllSum{}.mean(), 0);
  EXPECT_DOUBLE_EQ(NllSum{}.perplexity(), 1);
}

}  // namespace
}  // namespace quire
