// Mean negative log-likelihood over windows of a text. Pure arithmetic; no model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "quire/engine.h"

namespace quire {

// The method: the whole text is tokenised in one piece and cut into windows without overlap; what is left
// over is not counted. Each window is evaluated alone, and tokens 1 … window-1 of it are predicted. `bos`:
// replaces the first token of every window, for models that begin a text with it.
struct WindowPlan {
  int window = 512;
  std::optional<TokenId> bos;

  [[nodiscard]] int count(size_t tokens) const {
    return static_cast<int>(tokens / static_cast<size_t>(window));
  }
  [[nodiscard]] std::vector<TokenId> tokens(std::span<const TokenId> text, int index) const;
};

// Sum of -log p over predictions.
struct NllSum {
  double sum = 0;
  int64_t predictions = 0;
  [[nodiscard]] double mean() const;        // 0 without predictions
  [[nodiscard]] double perplexity() const;  // exp(mean)
};

struct WindowScore {
  NllSum all;
  NllSum second_half;  // predictions made at positions >= window / 2, with at least half a window of context
};

// Scores the positions of one window.
[[nodiscard]] WindowScore score_window(std::span<const PromptPosition> positions);

}  // namespace quire
