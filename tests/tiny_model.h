// Small models with random weights, as GGUF files in memory.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/tensor_type.h"
#include "files/gguf_file.h"
#include "files/gguf_writer.h"

namespace quire::test {

struct TinyModel {
  std::string architecture = "llama";  // also qwen2 (bias of q, k, v), gemma3 (norms of q and k, window)
  int layers = 2;
  int width = 64;
  int heads = 3;
  int kv_heads = 1;
  int head_dim = 32;
  int ffn_width = 96;
  int vocab_size = 100;
  int window = 0;  // gemma3
  TensorType type = TensorType::kQ8_0;
  TensorType other_type = TensorType::kQ8_0;  // of v, the MLP's down matrix and the embedding
  unsigned seed = 1;
};

// Where a block of `type` holds its 16-bit scales; MXFP4 has a byte of exponent instead.
inline std::vector<int> scale_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
    case TensorType::kIQ4_NL:
      return {0};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ2_K:
      return {80, 82};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

// Writes one model; bytes() is called once.
class TinyModelWriter {
 public:
  explicit TinyModelWriter(TinyModel model) : model_(std::move(model)), random_(model_.seed) {}

  std::vector<std::byte> bytes() {
    add_hyper_parameters();
    const TinyModel& m = model_;
    add_matrix("token_embd.weight", m.vocab_size, m.width, m.other_type);
    add_vector("output_norm.weight", m.width, 1.0f);
    for (int layer = 0; layer < m.layers; ++layer) add_layer("blk." + std::to_string(layer) + ".");
    return writer_.bytes();
  }

  // Of the model that bytes() made: for tests that damage it.
  GgufWriter& writer() { return writer_; }

 private:
  void add_hyper_parameters() {
    const TinyModel& m = model_;
    auto key = [&](const char* name) { return m.architecture + "." + name; };
    auto number = [&](const char* name, int value) { writer_.add(key(name), static_cast<uint32_t>(value)); };
    writer_.add("general.architecture", m.architecture.c_str());
    number("block_count", m.layers);
    number("context_length", 4096);
    number("embedding_length", m.width);
    number("feed_forward_length", m.ffn_width);
    number("attention.head_count", m.heads);
    number("attention.head_count_kv", m.kv_heads);
    number("attention.key_length", m.head_dim);
    number("attention.value_length", m.head_dim);
    number("vocab_size", m.vocab_size);
    number("rope.dimension_count", m.head_dim);
    writer_.add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    writer_.add(key("rope.freq_base"), 10000.0f);
    if (m.window > 0) number("attention.sliding_window", m.window);
  }

  void add_layer(const std::string& prefix) {
    const TinyModel& m = model_;
    int query_width = m.heads * m.head_dim;
    int key_width = m.kv_heads * m.head_dim;
    add_vector(prefix + "attn_norm.weight", m.width, 1.0f);
    add_matrix(prefix + "attn_q.weight", query_width, m.width, m.type);
    add_matrix(prefix + "attn_k.weight", key_width, m.width, m.type);
    add_matrix(prefix + "attn_v.weight", key_width, m.width, m.other_type);
    add_matrix(prefix + "attn_output.weight", m.width, query_width, m.type);
    add_vector(prefix + "ffn_norm.weight", m.width, 1.0f);
    add_matrix(prefix + "ffn_gate.weight", m.ffn_width, m.width, m.type);
    add_matrix(prefix + "ffn_up.weight", m.ffn_width, m.width, m.type);
    add_matrix(prefix + "ffn_down.weight", m.width, m.ffn_width, m.other_type);
    if (m.architecture == "qwen2") {
      add_vector(prefix + "attn_q.bias", query_width, 0.0f);
      add_vector(prefix + "attn_k.bias", key_width, 0.0f);
      add_vector(prefix + "attn_v.bias", key_width, 0.0f);
    }
    if (m.architecture == "gemma3") {
      add_vector(prefix + "attn_q_norm.weight", m.head_dim, 1.0f);
      add_vector(prefix + "attn_k_norm.weight", m.head_dim, 1.0f);
      add_vector(prefix + "post_attention_norm.weight", m.width, 1.0f);
      add_vector(prefix + "post_ffw_norm.weight", m.width, 1.0f);
    }
  }

  void add_vector(const std::string& name, int n, float mean) {
    std::normal_distribution<float> normal(mean, 0.3f);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random_);
    writer_.add_tensor_f32(name, {n}, values);
  }

  void add_matrix(const std::string& name, int out, int in, TensorType type) {
    const TensorTypeInfo& info = tensor_type_info(type);
    if (scale_offsets(type).empty() && type != TensorType::kMXFP4) {
      add_float_matrix(name, out, in, type);
      return;
    }
    size_t blocks = static_cast<size_t>(out) * in / info.block_elements;
    std::vector<std::byte> bytes(blocks * info.block_bytes);
    std::uniform_int_distribution<int> byte(0, 255);
    for (std::byte& value : bytes) value = static_cast<std::byte>(byte(random_));
    std::uniform_real_distribution<float> scale(0.5f, 1.5f);
    for (size_t block = 0; block < blocks; ++block) {
      std::byte* at = bytes.data() + block * info.block_bytes;
      if (type == TensorType::kMXFP4) at[0] = static_cast<std::byte>(121 + random_() % 3);
      for (int offset : scale_offsets(type)) {
        auto half =
            static_cast<_Float16>(scale(random_) * typical_scale(type) / std::sqrt(static_cast<float>(in)));
        std::memcpy(at + offset, &half, sizeof(half));
      }
    }
    writer_.add_tensor({.name = name, .type = type, .shape = {out, in}, .bytes = std::move(bytes)});
  }

  // About one over the spread of the codes (and of the scales of sub-blocks).
  static float typical_scale(TensorType type) {
    switch (type) {
      case TensorType::kQ8_0:
        return 1.0f / 74;
      case TensorType::kIQ4_NL:
        return 1.0f / 70;
      case TensorType::kQ4_0:
      case TensorType::kQ4_1:
        return 1.0f / 5;
      case TensorType::kQ5_0:
      case TensorType::kQ5_1:
        return 1.0f / 9;
      default:
        return 1.0f / 300;
    }
  }

  void add_float_matrix(const std::string& name, int out, int in, TensorType type) {
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(in)));
    std::vector<float> values(static_cast<size_t>(out) * in);
    for (float& value : values) value = normal(random_);
    if (type == TensorType::kF32) {
      writer_.add_tensor_f32(name, {out, in}, values);
      return;
    }
    std::vector<std::byte> bytes(values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      auto half = static_cast<_Float16>(values[i]);
      uint32_t word = 0;
      std::memcpy(&word, &values[i], sizeof(word));
      auto upper = static_cast<uint16_t>(word >> 16);
      std::memcpy(bytes.data() + 2 * i, type == TensorType::kF16 ? static_cast<void*>(&half) : &upper, 2);
    }
    writer_.add_tensor({.name = name, .type = type, .shape = {out, in}, .bytes = std::move(bytes)});
  }

  TinyModel model_;
  std::mt19937 random_;
  GgufWriter writer_;
};

}  // namespace quire::test
