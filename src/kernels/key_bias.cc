#include "kernels/key_bias.h"

#include <cmath>

#include "base/check.h"
#include "kernels/attention.h"

namespace quire {

KeyBiasTable make_key_bias_table(RopeFrequencies rope, int key_dim, int spans) {
  CHECK(0 <= rope.dims && rope.dims <= key_dim && spans >= 0);
  KeyBiasTable table;
  table.rope = std::move(rope);
  table.key_dim = key_dim;
  table.stride = KeyBiasTable::kMargin + kSpanTokens + KeyBiasTable::kMargin;
  table.within.assign(static_cast<size_t>(key_dim) * table.stride, 1.0f);
  for (size_t pair = 0; pair < table.rope.frequencies.size(); ++pair) {
    float* cosines = table.within.data() + 2 * pair * table.stride;
    for (size_t i = 0; i < table.stride; ++i) {
      const double angle = (static_cast<double>(i) - KeyBiasTable::kMargin) * table.rope.frequencies[pair];
      cosines[i] = static_cast<float>(std::cos(angle));
      cosines[table.stride + i] = static_cast<float>(std::sin(angle));
    }
  }
  const auto dims = static_cast<size_t>(table.rope.dims);
  table.starts.resize(static_cast<size_t>(spans) * dims);
  for (int span = 0; span < spans; ++span) {
    float* angles = table.starts.data() + static_cast<size_t>(span) * dims;
    rope_angles(table.rope, span * kSpanTokens, angles, angles + dims / 2);
  }
  return table;
}

const float* span_start_angles(const KeyBiasTable& table, int span, float* scratch) {
  const auto dims = static_cast<size_t>(table.rope.dims);
  const size_t at = static_cast<size_t>(span) * dims;
  if (at + dims <= table.starts.size()) return table.starts.data() + at;
  rope_angles(table.rope, span * kSpanTokens, scratch, scratch + dims / 2);
  return scratch;
}

void subtract_key_bias(const KeyBiasTable& table, const float* bias, const float* cos, const float* sin,
                       float* key) {
  const int dims = table.rope.dims;
  const bool halves = table.rope.pairing == RopeSpec::Pairing::kHalves;
  for (int i = 0; i < dims / 2; ++i) {
    const int first = halves ? i : 2 * i;
    const int second = halves ? i + dims / 2 : 2 * i + 1;
    key[first] -= bias[first] * cos[i] - bias[second] * sin[i];
    key[second] -= bias[second] * cos[i] + bias[first] * sin[i];
  }
  for (int d = dims; d < table.key_dim; ++d) key[d] -= bias[d];
}

}  // namespace quire
