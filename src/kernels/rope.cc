#include "kernels/rope.h"

#include <cmath>

#include "base/check.h"

namespace quire {

RopeFrequencies make_rope_frequencies(const RopeSpec& spec) {
  CHECK(spec.dims >= 0 && spec.dims % 2 == 0);
  const size_t pairs = static_cast<size_t>(spec.dims) / 2;
  CHECK(spec.freq_divisors.empty() || spec.freq_divisors.size() == pairs);
  RopeFrequencies rope{.pairing = spec.pairing, .dims = spec.dims, .frequencies = {}};
  rope.frequencies.reserve(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const double divisor = spec.freq_divisors.empty() ? 1.0 : spec.freq_divisors[i];
    const double exponent = -2.0 * static_cast<double>(i) / spec.dims;
    rope.frequencies.push_back(std::pow(spec.freq_base, exponent) * spec.position_scale / divisor);
  }
  return rope;
}

void rope_angles(const RopeFrequencies& rope, Position position, float* cos, float* sin) {
  for (size_t i = 0; i < rope.frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * rope.frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace quire
