// What a model is, as data. One generic transformer (model/transformer) executes any ModelSpec; a file per
// architecture (model/arch/) fills one in from a model file's hyper-parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/kv_geometry.h"

namespace quire {

enum class NormKind : uint8_t { kRms };                // x / rms(x) * w  (Zhang & Sennrich 2019)
enum class Activation : uint8_t { kSilu, kGeluTanh };  // of the gate in a gated MLP

// Rotary position embedding (Su et al. 2021) over the first `dims` of a head.
struct RopeSpec {
  enum class Pairing : uint8_t {
    kHalves,      // (i, i + dims/2): NeoX style
    kInterleaved  // (2i, 2i + 1)
  };
  Pairing pairing = Pairing::kHalves;
  int dims = 0;                      // rotated dimensions of a head; 0 = no RoPE in this layer
  double freq_base = 1e4;            // theta
  double position_scale = 1.0;       // positions are multiplied by it (linear scaling: 1/factor)
  std::vector<float> freq_divisors;  // [dims/2] or empty: llama3 style scaling, each frequency divided by it
};

// One decoder layer. Which optional weights exist follows from the flags.
struct LayerSpec {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;   // of q and k
  int value_dim = 0;  // of v
  int ffn_width = 0;
  int window = 0;         // 0 = full attention; else a query sees this many positions, its own included
  float score_scale = 0;  // multiplies q·k
  RopeSpec rope;
  bool qkv_bias = false;
  bool qk_norm = false;              // per-head RMS norm of q and k before RoPE
  bool post_attention_norm = false;  // norm of the attention output before it is added to the residual
  bool post_ffn_norm = false;        // norm of the MLP output before it is added
  Activation activation = Activation::kSilu;
};

struct ModelSpec {
  std::string architecture;  // as named by the file, e.g. "llama"
  std::string name;          // general.name, for people
  int vocab_size = 0;
  int width = 0;           // of the residual stream
  int context_length = 0;  // positions that the model was made for
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5f;
  float embedding_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0 = none; else cap * tanh(x / cap)
  bool tied_embeddings = false;
  std::vector<LayerSpec> layers;

  // Layers grouped by what they store per token and how far they see; groups in order of first layer.
  [[nodiscard]] KvGeometry kv_geometry(KvType type) const;
};

}  // namespace quire
