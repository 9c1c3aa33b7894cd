// llama: Llama 1 to 3, SmolLM2, Mistral, TinyLlama and all that GGUF files put under this name.
#include <cmath>
#include <cstring>
#include <vector>

#include "files/field_reader.h"
#include "model/arch/architecture.h"
#include "model/arch/decoder.h"

namespace quire {
namespace {

constexpr IntRange kWindow{0, 1 << 24};  // 0 = none

// Llama 3's RoPE scaling comes as a tensor of divisors, one a pair of dimensions.
Result<std::vector<float>> read_freq_divisors(const GgufFile& file, int rope_dims) {
  const std::string name = "rope_freqs.weight";
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return std::vector<float>{};
  const std::vector<int64_t> shape = {rope_dims / 2};
  if (tensor->type != TensorType::kF32 || tensor->shape != shape) {
    return fail(ErrorCode::kCorruptFile, name, "{}: tensor {} is not F32 of shape [{}]", file.path(), name,
                shape[0]);
  }
  std::vector<float> divisors(shape[0]);
  std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (!std::isfinite(divisors[i]) || divisors[i] <= 0) {
      return fail(ErrorCode::kCorruptFile, name,
                  "{}: tensor {} holds {} at {}, frequencies are divided by it", file.path(), name,
                  divisors[i], i);
    }
  }
  return divisors;
}

}  // namespace

Result<ModelSpec> read_llama_spec(HyperParameters& parameters) {
  const GgufFile& file = parameters.file();
  ModelSpec spec = TRY(read_decoder_spec(parameters));
  const auto window = TRY(parameters.optional_integer("attention.sliding_window", kWindow));
  const auto divisors = TRY(read_freq_divisors(file, spec.layers[0].rope.dims));
  for (size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    // Converters permute the rows of Q and K of this architecture to this pairing.
    layer.rope.pairing = RopeSpec::Pairing::kInterleaved;
    layer.rope.freq_divisors = divisors;
    if (window && *window < spec.context_length) layer.window = *window;
    layer.qkv_bias = file.find_tensor(fmt::format("blk.{}.attn_q.bias", index)) != nullptr;
  }
  return spec;
}

}  // namespace quire
