// A model whose K and V rows are hashes, so that a wrong, stale or missing row changes every later token.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/kv_geometry.h"
#include "core/step_plan.h"
#include "kv/kv_store.h"

namespace quire::sim {

using Tokens = std::vector<TokenId>;

// The vocabulary: letters, the end, and a token after which every logit is NaN and that is never chosen.
inline constexpr int kVocab = 8;
inline constexpr TokenId kEos = 6;
inline constexpr TokenId kBroken = 7;
[[nodiscard]] const std::vector<std::string>& toy_pieces();

// What a frame holds of a position: the model's hash, and a mark that only the checkers know.
struct ToyRow {
  uint64_t value = 0;
  uint64_t mark = 0;
};
[[nodiscard]] ToyRow& toy_row(KvStore& kv, int group, BlockId block, int slot);

// The row of a group at position p is a hash of the token, p and all rows of the group that p sees; the
// logits are a hash of the newest rows of all groups.
class ToyModel {
 public:
  // Rows are read from the store and written to it.
  LogitsView forward(const StepPlan& plan, KvStore& kv);

 private:
  std::vector<float> logits_;  // [logit_row, vocab]
};

// The same model for one sequence, without blocks.
class ToySequence {
 public:
  explicit ToySequence(const KvGeometry& geometry);
  void append(TokenId token);
  // After the last token.
  [[nodiscard]] std::span<const float> logits() const { return logits_; }

 private:
  std::vector<int> windows_;                 // [group]
  std::vector<std::vector<uint64_t>> rows_;  // [group][position]
  std::array<float, kVocab> logits_{};
};

}  // namespace quire::sim
