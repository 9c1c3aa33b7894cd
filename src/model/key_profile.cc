#include "model/key_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// A prime, so that the run takes its tokens from the whole vocabulary.
constexpr int64_t kTokenStep = 7919;
// Ratios beyond are those of dimensions that nobody uses.
constexpr double kRatioMax = 0x1p48;

// Roots are rounded alike everywhere, pow is not.
double gain_of(double query_squares, double key_squares) {
  const double ratio = query_squares / key_squares;
  if (!std::isfinite(ratio) || ratio <= 0) return 1;
  return std::sqrt(std::sqrt(std::sqrt(std::clamp(ratio, 1 / kRatioMax, kRatioMax))));
}

// The dimension that is rotated together with d, or d.
int partner_of(const RopeSpec& rope, int d) {
  if (d >= rope.dims) return d;
  const int half = rope.dims / 2;
  if (rope.pairing == RopeSpec::Pairing::kHalves) return d < half ? d + half : d - half;
  return d ^ 1;
}

}  // namespace

std::vector<TokenId> profile_tokens(const ModelSpec& spec) {
  std::vector<TokenId> ids(static_cast<size_t>(std::clamp(spec.context_length, 1, kProfileTokens)));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<TokenId>((1 + static_cast<int64_t>(i) * kTokenStep) % spec.vocab_size);
  return ids;
}

KeyRecord::KeyRecord(const ModelSpec& spec, int rows) : spec_(spec), rows_(rows) {
  CHECK(rows > 0);
  for (const LayerSpec& layer : spec.layers) {
    for (auto [to, heads] : {std::pair{&keys_, layer.kv_heads}, std::pair{&queries_, layer.heads}}) {
      const size_t width = static_cast<size_t>(heads) * static_cast<size_t>(layer.head_dim);
      to->push_back({width, std::vector<float>(static_cast<size_t>(rows) * width, 0.0f)});
    }
  }
}

float* KeyRecord::key(int layer, Position position, int kv_head) {
  CHECK(position >= 0 && position < rows_);
  Rows& rows = keys_[static_cast<size_t>(layer)];
  return rows.values.data() + static_cast<size_t>(position) * rows.width +
         static_cast<size_t>(kv_head) *
             static_cast<size_t>(spec_.layers[static_cast<size_t>(layer)].head_dim);
}

float* KeyRecord::query(int layer, Position position, int head) {
  CHECK(position >= 0 && position < rows_);
  Rows& rows = queries_[static_cast<size_t>(layer)];
  return rows.values.data() + static_cast<size_t>(position) * rows.width +
         static_cast<size_t>(head) * static_cast<size_t>(spec_.layers[static_cast<size_t>(layer)].head_dim);
}

std::vector<KeyProfile> KeyRecord::profiles() const {
  std::vector<KeyProfile> profiles;
  for (int layer = 0; layer < static_cast<int>(keys_.size()); ++layer) profiles.push_back(profile(layer));
  return profiles;
}

int KeyRecord::first_row() const {
  return std::min(kProfileSkipped, rows_ - 1);
}

// Of all heads that read a KV head: [kv_head * head_dim].
std::vector<double> KeyRecord::query_squares(int layer) const {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const Rows& rows = queries_[static_cast<size_t>(layer)];
  const auto dims = static_cast<size_t>(spec.head_dim);
  const auto sharing = static_cast<size_t>(spec.heads / spec.kv_heads);
  std::vector<double> squares(static_cast<size_t>(spec.kv_heads) * dims, 0.0);
  for (int row = first_row(); row < rows_; ++row) {
    for (size_t i = 0; i < rows.width; ++i) {
      const double q = rows.values[static_cast<size_t>(row) * rows.width + i];
      squares[i / dims / sharing * dims + i % dims] += q * q / static_cast<double>(sharing);
    }
  }
  return squares;
}

KeyProfile KeyRecord::profile(int layer) const {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const Rows& rows = keys_[static_cast<size_t>(layer)];
  KeyProfile profile;
  std::vector<double> key_squares(rows.width, 0.0);
  for (size_t i = 0; i < rows.width; ++i) {
    const auto at = [&](int row) -> double { return rows.values[static_cast<size_t>(row) * rows.width + i]; };
    double sum = 0;
    for (int row = first_row(); row < rows_; ++row) sum += at(row);
    const double mean = sum / (rows_ - first_row());
    for (int row = first_row(); row < rows_; ++row) key_squares[i] += (at(row) - mean) * (at(row) - mean);
    profile.mean.push_back(static_cast<float>(mean));
  }
  const std::vector<double> squares = query_squares(layer);
  for (size_t i = 0; i < rows.width; ++i) {
    const int d = static_cast<int>(i) % spec.head_dim;
    const size_t pair = i - static_cast<size_t>(d) + static_cast<size_t>(partner_of(spec.rope, d));
    const double gain = gain_of(squares[i] + squares[pair], key_squares[i] + key_squares[pair]);
    profile.gain.push_back(static_cast<float>(gain));
    profile.inverse_gain.push_back(static_cast<float>(1 / gain));
    profile.gained_mean.push_back(profile.mean[i] * profile.gain[i]);
  }
  return profile;
}

}  // namespace quire
