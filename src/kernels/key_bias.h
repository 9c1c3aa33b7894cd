// What all keys of a layer share, kept out of the codes: here called the bias.
//
// Before RoPE most of a key is the same for all tokens; Qwen2 even adds a vector that is in a few dimensions
// a hundred times larger than what the token contributes. Codes that span it have no room for the token. So
// it is subtracted before a token is encoded, rotated to the token's position, and comes back as a part of
// the score:
//   q · R(t) b = Σ P cos(t f) + Q sin(t f) over the rotated pairs, P = q0 b0 + q1 b1, Q = q1 b0 - q0 b1.
// With t = s + j, s the start of a span, these are products with rows that are the same for all spans, layers
// and heads.
#pragma once

#include <vector>

#include "kernels/rope.h"

namespace quire {

// For one rotation and head size. Immutable. Cost: 1,152 bytes a dimension and 4 bytes a dimension and span.
struct KeyBiasTable {
  static constexpr int kMargin = 16;  // tokens before and after a span that a tile of K may reach into

  RopeFrequencies rope;
  int key_dim = 0;
  size_t stride = 0;  // of `within`

  // [key_dim][stride]: cos of pair 0, sin of pair 0, cos of pair 1, …, then 1 for what is not rotated; of the
  // tokens kMargin before a span's start to kMargin after its end.
  std::vector<float> within;
  std::vector<float> starts;  // [span][rope.dims]: cosines of the span's start, then sines
};

[[nodiscard]] KeyBiasTable make_key_bias_table(RopeFrequencies rope, int key_dim, int spans);

// The angles of a span's start: from the table, or computed into `scratch` [rope.dims].
[[nodiscard]] const float* span_start_angles(const KeyBiasTable& table, int span, float* scratch);

// key -= bias, rotated by cos and sin [rope.dims / 2] of the token's position; key, bias: [key_dim].
void subtract_key_bias(const KeyBiasTable& table, const float* bias, const float* cos, const float* sin,
                       float* key);

}  // namespace quire
