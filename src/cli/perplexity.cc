#include "cli/perplexity.h"

#include <cmath>

namespace quire {

std::vector<TokenId> WindowPlan::tokens(std::span<const TokenId> text, int index) const {
  auto part =
      text.subspan(static_cast<size_t>(index) * static_cast<size_t>(window), static_cast<size_t>(window));
  std::vector<TokenId> tokens(part.begin(), part.end());
  if (bos) tokens.front() = *bos;
  return tokens;
}

double NllSum::mean() const {
  return predictions == 0 ? 0 : sum / static_cast<double>(predictions);
}

double NllSum::perplexity() const {
  return std::exp(mean());
}

WindowScore score_window(std::span<const PromptPosition> positions) {
  WindowScore score;
  for (size_t position = 0; position < positions.size(); ++position) {
    if (!positions[position].next) continue;
    double nll = -static_cast<double>(positions[position].next->logprob);
    score.all.sum += nll;
    ++score.all.predictions;
    if (position < positions.size() / 2) continue;
    score.second_half.sum += nll;
    ++score.second_half.predictions;
  }
  return score;
}

}  // namespace quire
