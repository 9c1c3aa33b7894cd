#include "model/weight_names.h"

#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Builds names of one layer: "blk.<layer>.<stem>".
class LayerNamer {
 public:
  explicit LayerNamer(int layer) : prefix_(fmt::format("blk.{}.", layer)) {}

  [[nodiscard]] WeightName vector(std::string_view stem, int64_t size) const {
    return {.name = prefix_ + std::string(stem), .shape = {size}};
  }
  [[nodiscard]] WeightName matrix(std::string_view stem, std::vector<int64_t> shape) const {
    return {.name = prefix_ + std::string(stem), .shape = std::move(shape)};
  }

 private:
  std::string prefix_;
};

}  // namespace

ModelWeightNames model_weight_names(const ModelSpec& spec) {
  ModelWeightNames names{
      .token_embedding = {.name = "token_embd.weight", .shape = {spec.vocab_size, spec.width}},
      .output_norm = {.name = "output_norm.weight", .shape = {spec.width}},
      .output = {},
  };
  if (!spec.tied_embeddings) {
    names.output = {.name = "output.weight", .shape = {spec.vocab_size, spec.width}};
  }
  return names;
}

LayerWeightNames layer_weight_names(const ModelSpec& spec, int layer) {
  CHECK(layer >= 0 && layer < static_cast<int>(spec.layers.size()));
  const LayerSpec& shape = spec.layers[layer];
  const int64_t width = spec.width;
  const int64_t ffn_width = shape.ffn_width;
  const int64_t query_width = int64_t{shape.heads} * shape.head_dim;
  const int64_t key_width = int64_t{shape.kv_heads} * shape.head_dim;
  const int64_t value_width = int64_t{shape.kv_heads} * shape.value_dim;
  const int64_t mixed_width = int64_t{shape.heads} * shape.value_dim;
  const LayerNamer namer(layer);

  LayerWeightNames names;
  names.attention_norm = namer.vector("attn_norm.weight", width);
  names.query = namer.matrix("attn_q.weight", {query_width, width});
  names.key = namer.matrix("attn_k.weight", {key_width, width});
  names.value = namer.matrix("attn_v.weight", {value_width, width});
  names.attention_output = namer.matrix("attn_output.weight", {width, mixed_width});
  names.ffn_norm = namer.vector("ffn_norm.weight", width);
  names.ffn_gate = namer.matrix("ffn_gate.weight", {ffn_width, width});
  names.ffn_up = namer.matrix("ffn_up.weight", {ffn_width, width});
  names.ffn_down = namer.matrix("ffn_down.weight", {width, ffn_width});
  if (shape.qkv_bias) {
    names.query_bias = namer.vector("attn_q.bias", query_width);
    names.key_bias = namer.vector("attn_k.bias", key_width);
    names.value_bias = namer.vector("attn_v.bias", value_width);
  }
  if (shape.qk_norm) {
    names.query_norm = namer.vector("attn_q_norm.weight", shape.head_dim);
    names.key_norm = namer.vector("attn_k_norm.weight", shape.head_dim);
  }
  if (shape.post_attention_norm) {
    names.post_attention_norm = namer.vector("post_attention_norm.weight", width);
  }
  if (shape.post_ffn_norm) names.post_ffn_norm = namer.vector("post_ffw_norm.weight", width);
  return names;
}

std::vector<WeightName> all_weight_names(const ModelSpec& spec) {
  const ModelWeightNames model = model_weight_names(spec);
  std::vector<WeightName> weights = {model.token_embedding, model.output_norm, model.output};
  for (int index = 0; index < static_cast<int>(spec.layers.size()); ++index) {
    LayerWeightNames layer = layer_weight_names(spec, index);
    for (WeightName* weight :
         {&layer.attention_norm, &layer.query, &layer.key, &layer.value, &layer.query_bias, &layer.key_bias,
          &layer.value_bias, &layer.query_norm, &layer.key_norm, &layer.attention_output,
          &layer.post_attention_norm, &layer.ffn_norm, &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down,
          &layer.post_ffn_norm}) {
      weights.push_back(std::move(*weight));
    }
  }
  std::erase_if(weights, [](const WeightName& weight) { return !weight.present(); });
  return weights;
}

Result<const GgufTensor*> find_weight(const GgufFile& file, const WeightName& weight) {
  CHECK(weight.present());
  const GgufTensor* tensor = file.find_tensor(weight.name);
  if (tensor == nullptr) {
    return fail(ErrorCode::kCorruptFile, weight.name, "{}: tensor {} is missing", file.path(), weight.name);
  }
  if (tensor->shape != weight.shape) {
    return fail(ErrorCode::kCorruptFile, weight.name,
                "{}: tensor {} has shape [{}], the hyper-parameters want [{}]", file.path(), weight.name,
                fmt::join(tensor->shape, ", "), fmt::join(weight.shape, ", "));
  }
  return tensor;
}

}  // namespace quire
