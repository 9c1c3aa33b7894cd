// gemma3: the text model of Gemma 3.
#include <cmath>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/decoder.h"

namespace quire {
namespace {

constexpr int kWindowPatternDefault = 6;  // every sixth layer sees everything
constexpr IntRange kWindowPattern{1, 1024};
constexpr IntRange kWindow{1, 1 << 24};
constexpr double kLocalFreqBaseDefault = 10000.0;
constexpr FloatRange kFreqBase{1.0, 1e12};
// The 27B model scales its scores by the width of its heads' share of the residual stream rather than by
// head_dim. Files have no key for it; its number of layers is its own.
constexpr size_t kLayersOf27B = 62;

// Which layers have the sliding window.
Result<std::vector<bool>> read_windowed_layers(HyperParameters& parameters, int layers) {
  const std::string_view key = "attention.sliding_window_pattern";
  if (parameters.is_array(key)) return parameters.flags_per_layer(key, layers);
  const int pattern = TRY(parameters.optional_integer(key, kWindowPattern))
  .value_or(kWindowPatternDefault);
  std::vector<bool> windowed(layers);
  for (int layer = 0; layer < layers; ++layer) windowed[layer] = (layer + 1) % pattern != 0;
  return windowed;
}

}  // namespace

Result<ModelSpec> read_gemma3_spec(HyperParameters& parameters) {
  ModelSpec spec = TRY(read_decoder_spec(parameters));
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.width)));
  const int window = TRY(parameters.integer("attention.sliding_window", kWindow));
  const auto windowed = TRY(read_windowed_layers(parameters, static_cast<int>(spec.layers.size())));
  const double local_base = TRY(parameters.optional_number("rope.freq_base_swa", kFreqBase))
  .value_or(kLocalFreqBaseDefault);
  // Sizes of the image encoder, whose weights are another file.
  parameters.ignore("vision.");
  parameters.ignore("mm.");
  for (size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    layer.rope.pairing = RopeSpec::Pairing::kHalves;
    layer.qk_norm = true;
    layer.post_attention_norm = true;
    layer.post_ffn_norm = true;
    layer.activation = Activation::kGeluTanh;
    if (spec.layers.size() == kLayersOf27B) {
      layer.score_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.width) / layer.heads));
    }
    if (windowed[index]) {
      layer.window = window;
      layer.rope.freq_base = local_base;
      layer.rope.position_scale = 1.0;  // scaling is for the layers that see far
    }
  }
  return spec;
}

}  // namespace quire
