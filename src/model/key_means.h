// What the keys of a layer have in common, learnt from the model itself.
//
// Before rotation most of a key (70 to 90 % of its square, and nearly all of Qwen2's) is the same for every
// token. Codes that leave it out (kernels/key_bias.h) are finer by that much. It is the mean over a fixed run
// of tokens that mean nothing together: the same on every machine, with every instruction set and thread
// count.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"

namespace quire {

// Tokens of the run, and how many of the first ones do not count: a first token's key is often unlike all
// others.
inline constexpr int kKeyMeanTokens = 128;
inline constexpr int kKeyMeanSkipped = 4;

[[nodiscard]] std::vector<TokenId> key_mean_tokens(const ModelSpec& spec);

// Keys after their norm and before rotation. The step's threads write distinct rows.
class KeyRecord {
 public:
  KeyRecord(const ModelSpec& spec, int rows);

  // Of the row at `position`: [head_dim].
  [[nodiscard]] float* key(int layer, Position position, int kv_head);
  // [layer][kv_head * head_dim]
  [[nodiscard]] std::vector<std::vector<float>> means() const;

 private:
  const ModelSpec& spec_;
  int rows_;
  std::vector<std::vector<float>> keys_;  // [layer][position][kv_head][head_dim]
};

}  // namespace quire
