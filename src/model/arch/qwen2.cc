// qwen2: Qwen 1.5 to 2.5, with biases on Q, K and V.
#include "model/arch/architecture.h"
#include "model/arch/decoder.h"

namespace quire {

Result<ModelSpec> read_qwen2_spec(HyperParameters& parameters) {
  ModelSpec spec = TRY(read_decoder_spec(parameters));
  for (LayerSpec& layer : spec.layers) {
    layer.rope.pairing = RopeSpec::Pairing::kHalves;
    layer.qkv_bias = true;
  }
  return spec;
}

}  // namespace quire
