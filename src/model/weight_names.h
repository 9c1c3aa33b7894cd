// Which tensors of a model file a ModelSpec needs: their names and shapes. Names: GGUF specification.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "files/gguf_file.h"

namespace quire {

// One tensor that the model needs. An empty name: this model has no such weight.
struct WeightName {
  std::string name;            // e.g. "blk.3.attn_q.weight"
  std::vector<int64_t> shape;  // row-major: [out, in] for a matrix, [n] for a vector

  [[nodiscard]] bool present() const { return !name.empty(); }
};

// The weights of one decoder layer.
struct LayerWeightNames {
  WeightName attention_norm;       // [width]
  WeightName query;                // [heads * head_dim, width]
  WeightName key;                  // [kv_heads * head_dim, width]
  WeightName value;                // [kv_heads * value_dim, width]
  WeightName query_bias;           // [heads * head_dim]; with qkv_bias
  WeightName key_bias;             // [kv_heads * head_dim]; with qkv_bias
  WeightName value_bias;           // [kv_heads * value_dim]; with qkv_bias
  WeightName query_norm;           // [head_dim]; with qk_norm
  WeightName key_norm;             // [head_dim]; with qk_norm
  WeightName attention_output;     // [width, heads * value_dim]
  WeightName post_attention_norm;  // [width]; with post_attention_norm
  WeightName ffn_norm;             // [width]
  WeightName ffn_gate;             // [ffn_width, width]
  WeightName ffn_up;               // [ffn_width, width]
  WeightName ffn_down;             // [width, ffn_width]
  WeightName post_ffn_norm;        // [width]; with post_ffn_norm
};

struct ModelWeightNames {
  WeightName token_embedding;  // [vocab, width]
  WeightName output_norm;      // [width]
  WeightName output;           // [vocab, width]; absent with tied_embeddings: use token_embedding
};

[[nodiscard]] ModelWeightNames model_weight_names(const ModelSpec& spec);
[[nodiscard]] LayerWeightNames layer_weight_names(const ModelSpec& spec, int layer);
// Every weight that is present(), the model's first, then layer by layer.
[[nodiscard]] std::vector<WeightName> all_weight_names(const ModelSpec& spec);

// The tensor of that name. Errors: kCorruptFile when the file has none, or one of another shape (both shapes
// named). `weight` is present().
[[nodiscard]] Result<const GgufTensor*> find_weight(const GgufFile& file, const WeightName& weight);

}  // namespace quire
