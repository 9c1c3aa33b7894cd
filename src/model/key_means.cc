#include "model/key_means.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// A prime, so that the run takes its tokens from the whole vocabulary.
constexpr int64_t kTokenStep = 7919;

size_t key_width(const LayerSpec& layer) {
  return static_cast<size_t>(layer.kv_heads) * static_cast<size_t>(layer.head_dim);
}

}  // namespace

std::vector<TokenId> key_mean_tokens(const ModelSpec& spec) {
  std::vector<TokenId> ids(static_cast<size_t>(std::clamp(spec.context_length, 1, kKeyMeanTokens)));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<TokenId>((1 + static_cast<int64_t>(i) * kTokenStep) % spec.vocab_size);
  return ids;
}

KeyRecord::KeyRecord(const ModelSpec& spec, int rows) : spec_(spec), rows_(rows) {
  CHECK(rows > 0);
  for (const LayerSpec& layer : spec.layers)
    keys_.emplace_back(static_cast<size_t>(rows) * key_width(layer), 0.0f);
}

float* KeyRecord::key(int layer, Position position, int kv_head) {
  CHECK(position >= 0 && position < rows_);
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  return keys_[static_cast<size_t>(layer)].data() + static_cast<size_t>(position) * key_width(spec) +
         static_cast<size_t>(kv_head) * static_cast<size_t>(spec.head_dim);
}

std::vector<std::vector<float>> KeyRecord::means() const {
  const int first = std::min(kKeyMeanSkipped, rows_ - 1);
  std::vector<std::vector<float>> means;
  for (size_t layer = 0; layer < keys_.size(); ++layer) {
    const size_t width = key_width(spec_.layers[layer]);
    std::vector<float>& mean = means.emplace_back(width, 0.0f);
    for (size_t d = 0; d < width; ++d) {
      double sum = 0;
      for (int row = first; row < rows_; ++row) sum += keys_[layer][static_cast<size_t>(row) * width + d];
      mean[d] = static_cast<float>(sum / (rows_ - first));
    }
  }
  return means;
}

}  // namespace quire
