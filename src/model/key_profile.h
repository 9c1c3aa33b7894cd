// What is common to the keys of a layer, and which of their dimensions matter, learnt from the model itself.
//
// Before rotation most of a key (70 to 90 % of its square, and nearly all of Qwen2's) is the same for every
// token. Codes that leave it out (kernels/key_bias.h) are finer by that much.
//
// Codes of a rotated row err by as much in every dimension, but a score weighs an error by q. So a dimension
// is stored times a gain, and q divided by it: it is larger where queries are large and keys small. The mean
// square error of a score is least where gain^4 is the ratio of their squares. Half that exponent is taken:
// the run knows either only roughly, and text that it does not resemble loses nothing then.
//
// Both come from a fixed run of tokens that mean nothing together: the same on every machine, with every
// instruction set and thread count.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"

namespace quire {

// Tokens of the run, and how many of the first ones do not count: a first token's key is often unlike all
// others.
inline constexpr int kProfileTokens = 128;
inline constexpr int kProfileSkipped = 4;

[[nodiscard]] std::vector<TokenId> profile_tokens(const ModelSpec& spec);

// Of one layer; all [kv_head * head_dim]. The two dimensions of a rotated pair have the same gain, so that it
// may be applied before or after rotation.
struct KeyProfile {
  std::vector<float> mean;
  std::vector<float> gain;
  std::vector<float> inverse_gain;
  std::vector<float> gained_mean;  // mean * gain
};

// Keys and queries of the run, after their norm and before rotation. The step's threads write distinct rows.
// Cost: 4 bytes a dimension of all heads, layers and tokens, until the profiles are made.
class KeyRecord {
 public:
  // `spec` outlives the record.
  KeyRecord(const ModelSpec& spec, int rows);

  // Of the row at `position`: [head_dim].
  [[nodiscard]] float* key(int layer, Position position, int kv_head);
  [[nodiscard]] float* query(int layer, Position position, int head);
  // [layer]
  [[nodiscard]] std::vector<KeyProfile> profiles() const;

 private:
  // [position][head * head_dim] of one layer.
  struct Rows {
    size_t width = 0;
    std::vector<float> values;
  };
  [[nodiscard]] KeyProfile profile(int layer) const;
  [[nodiscard]] std::vector<double> query_squares(int layer) const;
  [[nodiscard]] int first_row() const;

  const ModelSpec& spec_;
  int rows_;
  std::vector<Rows> keys_;     // [layer]
  std::vector<Rows> queries_;  // [layer]
};

}  // namespace quire
