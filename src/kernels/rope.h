// Rotary position embedding (Su et al., "RoFormer", 2021): the angles of a position.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"

namespace quire {

// The rotation speeds of one kind of layer: frequencies[i] = freq_base^(-2i/dims) * position_scale /
// divisor[i].
struct RopeFrequencies {
  RopeSpec::Pairing pairing = RopeSpec::Pairing::kHalves;
  int dims = 0;
  std::vector<double> frequencies;  // [dims / 2]
};

[[nodiscard]] RopeFrequencies make_rope_frequencies(const RopeSpec& spec);

// cos and sin of position * frequency for each pair, computed in double and rounded once: the bits of a row
// depend on its position only. cos, sin: [dims / 2] each.
void rope_angles(const RopeFrequencies& rope, Position position, float* cos, float* sin);

}  // namespace quire
